"""The three papers' published numbers beside what runs measured (docs/results/papers.md).

`cells` puts each number beside its runs, `causes` asks what a difference comes from, `networks`
asks Serrano & Smith's networks again under nulls, `guides` reads the guided models by other scores,
and `page` writes it all down. Everything is made of the runs' tables alone.
"""
