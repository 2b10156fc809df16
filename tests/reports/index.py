"""Public bug reports of other tools, the right answer to each, and the tests that ask for it.

Each is followed by siblings: cases of the same kind that nobody has reported. `test_index.py` sees
to it that all of these tests exist.
"""

from dataclasses import dataclass

PRETRAINED = "models/pretrained/"
SIBLINGS = "reports/test_siblings.py"


@dataclass(frozen=True)
class Report:
    """One report.

    Attributes:
        sources: where people met it.
        symptom: what they met.
        answer: what has to happen.
        tests: that the answer is given, as `file::test` below tests.
        siblings: tests of other cases of its kind.
    """

    sources: str
    symptom: str
    answer: str
    tests: tuple[str, ...]
    siblings: tuple[str, ...]


REPORTS = {
    "eos is padding": Report(
        "huggingface/transformers#35352, #35909",
        "a decoder's padding is its end token, or it has none: another piece is pooled",
        "the library's prediction of each text alone, and the row of the piece that it pools",
        (f"{PRETRAINED}test_reference.py::test_a_decoder_pools_the_piece_that_its_library_pools",),
        (
            f"{SIBLINGS}::test_a_text_that_ends_in_the_padding_token_is_pooled_as_by_the_library",
            f"{SIBLINGS}::test_a_decoder_that_cuts_and_pads_on_the_left_pools_as_its_library",
        ),
    ),
    "line breaks": Report(
        "facebookresearch/fastText#435, dotnet/machinelearning#7724, tensorflow/tfhub.dev#90",
        "line breaks, tabs and double spaces are collapsed before the tokenizer reads them",
        "the library's prediction of the cell as it stands",
        (
            f"{PRETRAINED}test_reference.py::test_line_breaks_reach_the_model",
            f"{PRETRAINED}test_reference.py::"
            "test_space_around_a_text_and_odd_spaces_reach_the_model",
        ),
        (
            f"{SIBLINGS}::test_spaces_and_marks_reach_a_tokenizer_of_any_family",
            f"{SIBLINGS}::test_a_line_break_in_a_text_reaches_a_prompted_model",
            f"{PRETRAINED}test_reference.py::test_both_texts_of_a_pair_are_read_as_they_are",
        ),
    ),
    "special token in a text": Report(
        "pytorch/PiPPy#308, SKT-AI/KoBART#21, huggingface/transformers#18849",
        "a text spells </s> or [SEP] out: the batch is refused, or another piece is pooled",
        "one line that names the row and the token; or its characters, on request",
        (
            f"{PRETRAINED}test_words_of_pieces.py::"
            "test_a_text_that_a_network_cannot_read_among_others_is_named_with_its_token",
            f"{PRETRAINED}test_words_of_pieces.py::"
            "test_its_characters_are_read_where_that_is_asked_for",
            f"{PRETRAINED}test_words_of_pieces.py::"
            "test_a_special_token_is_read_as_the_library_reads_it_and_counted",
        ),
        (
            f"{SIBLINGS}::test_a_special_token_in_the_second_text_of_a_pair_is_read_as_one",
            f"{SIBLINGS}::test_an_end_token_in_a_text_does_not_end_a_prompt",
        ),
    ),
    "piece of two words": Report(
        "ggml-org/llama.cpp#12532, huggingface/tokenizers#1753, google/sentencepiece#423",
        "a piece spans several words, of which all but the first vanish",
        "both words are one unit, in the text's own spelling",
        (
            f"{PRETRAINED}test_words_of_pieces.py::test_two_words_of_one_piece_are_one_unit",
            f"{PRETRAINED}test_words_of_pieces.py::"
            "test_words_of_one_piece_are_counted_and_a_text_that_ends_so_is_not_cut",
        ),
        (
            f"{SIBLINGS}::test_bytes_that_are_merged_across_spaces_are_one_unit",
            f"{SIBLINGS}::test_words_of_one_piece_in_the_second_text_of_a_pair_are_one_unit",
            f"{PRETRAINED}test_words_of_pieces.py::test_marks_of_two_words_of_one_piece_are_joined",
        ),
    ),
    "lone quotation mark": Report(
        "pandas-dev/pandas#21695, #39857, pytorch/text#612, rewicks/ersatz#1",
        "a cell of a .tsv begins with a quotation mark and swallows the lines up to the next one",
        "every row, and a line that says how marks were read",
        ("data/test_quoting.py::test_a_mark_in_a_tsv_without_quoting_swallows_no_row",),
        (
            "data/test_quoting.py::test_a_mark_in_a_csv_without_quoting_swallows_no_row",
            "data/test_quoting.py::test_line_ends_within_cells_are_counted_and_said",
        ),
    ),
    "quotation marks behind a backslash": Report(
        "pandas-dev/pandas#21862, #16682, NVIDIA/cudf#11984",
        "Spark and MySQL escape a mark by a backslash, and the cell ends there",
        "the text that was written, and a line that says so",
        ("data/test_quoting.py::test_a_mark_that_a_backslash_escapes_is_a_mark",),
        (
            "data/test_quoting.py::"
            "test_a_backslash_before_the_end_of_a_cell_is_text_where_marks_are_doubled",
            "data/test_quoting.py::test_backslashes_that_nothing_shows_to_be_escapes_are_text",
            "data/test_writers.py::test_a_file_of_a_database_is_read_as_it_was_written",
        ),
    ),
    "two tables of labels": Report(
        "huggingface/transformers#28589, #3093, huggingface/optimum#278",
        "id2label and label2id contradict each other, or count from 1",
        "one line that shows both tables; names that stand in one table alone are taken",
        (
            f"{PRETRAINED}test_labels.py::test_tables_of_labels_that_are_wrong_are_shown",
            f"{PRETRAINED}test_labels.py::test_names_that_stand_in_one_table_alone_are_taken",
            f"{PRETRAINED}test_labels.py::"
            "test_of_two_names_equal_but_for_case_the_very_name_is_taken",
        ),
        (
            f"{SIBLINGS}::test_numbers_for_names_in_another_order_are_names",
            f"{SIBLINGS}::test_two_names_for_one_class_of_the_data_are_refused",
            f"{PRETRAINED}test_labels.py::"
            "test_two_tables_that_differ_in_case_alone_do_not_contradict_each_other",
        ),
    ),
    "left over rank": Report(
        "Lightning-AI/pytorch-lightning#2278, #2317, #6797, #11406",
        "RANK or LOCAL_RANK of another launcher, or empty: nothing is saved, without an error",
        "the run as without it, and one line that names the variable",
        ("core/test_launchers.py::test_a_rank_of_another_launcher_is_forgotten_and_said",),
        (
            "core/test_launchers.py::"
            "test_several_processes_of_torchrun_are_refused_with_the_variables",
            "core/test_launchers.py::test_one_process_of_torchrun_is_a_run",
        ),
    ),
    "outside the window": Report(
        "huggingface/transformers#35158, #40163, npatsakula/svod#122",
        "words that a layer's window cannot see count as weight 0, and tests give them weight",
        "they are no content of the row, and no forbidden place is above 0 in any pass",
        (
            f"{PRETRAINED}test_unseen.py::test_content_is_what_the_row_can_see",
            f"{PRETRAINED}test_unseen.py::test_no_forbidden_place_has_weight_under_any_attention",
            f"{PRETRAINED}test_every_pass.py::test_no_test_gives_weight_to_a_forbidden_place",
            f"{PRETRAINED}test_own_hook.py::"
            "test_the_tvd_of_permuted_weights_is_that_of_a_hook_of_our_own",
        ),
        (
            f"{SIBLINGS}::test_a_layer_that_sees_all_below_one_with_a_window_has_all_words",
            f"{SIBLINGS}::test_of_a_pair_the_text_outside_the_window_is_not_seen",
            "probes/test_swaps.py::test_words_that_are_not_seen_are_no_chance",
        ),
    ),
}
