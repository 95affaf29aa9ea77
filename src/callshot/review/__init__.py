"""Review by ear and eye: detections or segments → what people said of them.

sources         a scan, a table of segments or a study → items
items           the items and their arrays
journal         every decision, in a file that only grows
decisions       the journal → what stands: decisions, undo, splits, conflicts
orders          items → the order in which they are shown, and filters
model_scores    vectors of items, and their scores by a model that moves with every decision
estimates       precision, intervals, agreement
shot_curve      the k-shot curve of the labels collected so far
sound           spans of recordings → WAV, waveforms
spectrogram     signals → pictures
session         all of it together: what the page asks, and what it gets
results         a journal → annotations, and examples for `callshot learn`
web             the routes of the page, as a Starlette application
web_safety      token, Host, Origin, content-security policy, Range
server          the port, the browser, the end
"""
