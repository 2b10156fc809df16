"""Sequence classifiers of Hugging Face's `transformers`, with one of their attentions in the place of an LSTM's.

`checkpoint` opens them, `doors` gets at their attention, `rows` goes from rows over pieces to one weight per word and back,
`short_way` computes what follows the last layer's attention, `check` looks whether all this is so, `model` puts it together.
"""
