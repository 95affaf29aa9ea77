"""Pages in the browser: review detections (`session`), or label recordings (`labelling`).

The journal has what people did; `decisions` and `labels` say what is in effect.
"""
