"""The rules by which active windows become events, written out window by window."""

NONE = -1  # the label of a window without a call


def literal_events(labels, scores, window_s, hop_s, gap_s, duration_s, call_s):
    """Return events by the rules in the docstring of `merge_windows`, window by window."""
    windows = []
    for n, label in enumerate(labels):
        if label != NONE:
            end_s = min(n * hop_s + window_s, duration_s)
            windows.append((n * hop_s, end_s, label, scores[n]))
    runs = []
    for window in windows:
        is_new = not runs or window[0] - runs[-1][-1][0] - hop_s > gap_s + 1e-6
        if is_new:
            runs.append([])
        runs[-1].append(window)
    events = []
    for run in runs:
        stretches = []
        for window in run:
            if not stretches or stretches[-1][-1][2] != window[2]:
                stretches.append([])
            stretches[-1].append(window)
        events += literal_run(stretches, window_s, hop_s, duration_s, call_s)
    merged = []
    for start_s, end_s, label, score in events:
        for n, one in enumerate(merged):
            if one[2] == label and round(start_s, 6) < round(one[1], 6):
                merged[n] = (one[0], max(one[1], end_s), label, max(one[3], score))
                break
        else:
            merged.append((start_s, end_s, label, score))
    return merged


def literal_run(stretches, window_s, hop_s, duration_s, call_s):
    def strength(number):
        return max(window[3] for window in stretches[number])

    kept = []
    numbers = sorted(range(len(stretches)), key=lambda n: (-strength(n), n))
    for number in numbers:
        before = [n for n in kept if n < number]
        after = [n for n in kept if n > number]
        is_part = True
        for start_s, end_s, _, _ in stretches[number]:
            touches = False
            if before:
                touches |= start_s <= stretches[max(before)][-1][1] + 1e-6
            if after:
                touches |= end_s >= stretches[min(after)][0][0] - 1e-6
            is_part &= touches
        if not is_part:
            kept.append(number)
    calls = []
    for number in sorted(kept):
        stretch = stretches[number]
        if calls and calls[-1][0][2] == stretch[0][2]:
            calls[-1] += stretch
        else:
            calls.append(list(stretch))
    return [literal_event(call, window_s, hop_s, duration_s, call_s) for call in calls]


def literal_event(call, window_s, hop_s, duration_s, call_s):
    strongest = max(call, key=lambda window: window[3])
    first_s, last_s = call[0][0], call[-1][1]
    active_s = call[-1][0] - first_s + hop_s
    length_s = min(call_s[call[0][2]] + hop_s, window_s) + max(0, active_s - window_s)
    length_s = min(length_s, last_s - first_s)
    centre_s = (first_s + last_s) / 2
    start_s = 0.0 if first_s < 1e-6 else centre_s - length_s / 2
    end_s = last_s if last_s > duration_s - 1e-6 else centre_s + length_s / 2
    return start_s, end_s, strongest[2], strongest[3]
