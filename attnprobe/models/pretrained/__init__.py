"""Sequence classifiers of Hugging Face's `transformers`, one of whose attentions is examined.

`model` puts it together. `checkpoint` opens the network: `folder_checks` refuses what would do
harm, `class_matching` finds the data's classes among its own, and `heads` gives it classes where it
has none. `attention_hooks` gets at its attention, and checks that it is the one that the network
computes with. `site` goes from rows over pieces to one weight per word and back. `linearised` takes
the layers apart.
"""
