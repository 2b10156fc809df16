// The box beside what is pointed at: a word of a heat map, a mark of a figure.

const tip = element("div", { className: "tip", hidden: true });
tip.setAttribute("aria-hidden", "true");
document.body.append(tip);

function placeTip(at) {
  tip.hidden = false;
  const [width, height] = [tip.offsetWidth, tip.offsetHeight];
  const below = at.bottom + 6 + height < innerHeight;
  tip.style.left = `${Math.max(8, Math.min(at.left, document.documentElement.clientWidth - width - 8))}px`;
  tip.style.top = `${below ? at.bottom + 6 : Math.max(8, at.top - height - 6)}px`;
}

// a place of a figure has its words as a title; the browser's own box would come late, and beside this one
function wordsOf(spot) {
  const title = spot.querySelector("title");
  if (title) {
    spot.dataset.words = title.textContent;
    title.remove();
  }
  return spot.dataset.words;
}

document.addEventListener("pointerover", (event) => {
  const spot = event.target.closest?.(".spot");
  if (!spot) return;
  tip.replaceChildren(element("span", { dir: "auto" }, wordsOf(spot)));
  placeTip(spot.getBoundingClientRect());
});
document.addEventListener("pointerout", (event) => {
  if (event.target.closest?.(".spot")) tip.hidden = true;
});
