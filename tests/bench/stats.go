package main

import (
	"math"
	"slices"
	"time"
)

func sortedCopy(d []time.Duration) []time.Duration {
	out := slices.Clone(d)
	slices.Sort(out)
	return out
}

// quantile of what is sorted, by the nearest rank: the smallest value that at least a share q of all does not exceed.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// median of values; the mean of the middle two when their number is even. 0 of none.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Clone(v)
	slices.Sort(v)
	mid := len(v) / 2
	if len(v)%2 == 1 {
		return v[mid]
	}
	return (v[mid-1] + v[mid]) / 2
}

// ratio is the median of the rounds' own ratios: each compares neighbours in time, so the machine's drift cancels. It is not
// a number when a round of b gave nothing to divide by.
func ratio(a, b []float64) float64 {
	n := min(len(a), len(b))
	v := make([]float64, n)
	for i := range n {
		if b[i] == 0 {
			return math.NaN()
		}
		v[i] = a[i] / b[i]
	}
	if n == 0 {
		return math.NaN()
	}
	return median(v)
}
