"""Sequence classifiers of Hugging Face's `transformers`, with one of their attentions in the place
of an LSTM's.

`model` puts it together: `checkpoint` opens the network, `attention_hooks` gets at its attention
and checks that it is the one that the network computes with (and that the last layer can be run
alone), `site` goes from rows over pieces to one weight per word and back, `linearised` takes the
layers apart."""
