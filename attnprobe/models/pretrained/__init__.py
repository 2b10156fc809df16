"""Sequence classifiers of Hugging Face's `transformers`, with one of their attentions in the place of an LSTM's.

`model` puts it together: `checkpoint` opens the network, `attention_hooks` gets at its attention and checks that it is the
one that the network computes with, `site` goes from rows over pieces to one weight per word and back, `partial_passes`
runs the last layer alone, `linearised` takes the layers apart.
"""
