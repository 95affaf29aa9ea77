"""Pages in the browser: review detections or segments, or label recordings.

sources      a scan, a table of segments or a study → items, their orders and filters, vectors, and
             scores that follow decisions
journal      every decision, in a file that only grows
decisions    the journal → what is in effect: decisions, undo, splits, conflicts
estimates    precision, agreement, and the k-shot curve of the labels collected so far
sound        spans of recordings → WAV files, waveforms, spectrograms
session      all of it together: what the page asks, and what it gets
labels       the journal → boxes that people draw on recordings, and what they listened to
labelling    what the page to label recordings asks, and what it gets
tiles        a recording of any length → tiles of its spectrogram
children     commands that run beside the server
similar      an index that is made meanwhile, and sounds in it that are similar to calls
finding      all calls, by a model of those that are labelled; reviews of them
results      a journal → calls for other programs and for models; the state of its files
web          the routes of both pages, as a Starlette application
web_safety   token, Host, Origin, content-security policy, Range; the port and token that are kept
server       the folder, the port, the browser, the end
"""
