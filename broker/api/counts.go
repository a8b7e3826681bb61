package api

import (
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol"
)

// RequestStats counts the requests of one API key since the start.
type RequestStats struct {
	API     string
	Errors  uint64   // answers with an error code anywhere in them, and requests whose connection was closed instead
	Seconds float64  // from the request's whole frame to its answer, what it waited for included
	Buckets []uint64 // requests by RequestBounds, one more for those above all
}

// RequestBounds are upper bounds of the times of requests, in seconds.
var RequestBounds = []float64{.0001, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

const requestBounds = 15

// requestCounts holds a counter for each advertised key, so that what peers send does not make it larger.
type requestCounts [kmsg.MaxKey + 1]*requestCount

type requestCount struct {
	errors, nanos atomic.Uint64
	buckets       [requestBounds + 1]atomic.Uint64
}

func (r *requestCounts) init() {
	for _, a := range protocol.APIs() {
		r[a.Key] = &requestCount{}
	}
}

// count takes note of a request that was answered just now.
func (d *Dispatcher) count(c *call, failed bool) {
	n := d.counts[c.header.Key]
	took := time.Since(c.began)
	n.nanos.Add(uint64(took))
	at, _ := slices.BinarySearch(RequestBounds, took.Seconds())
	n.buckets[at].Add(1)
	if failed {
		n.errors.Add(1)
	}
}

// Requests returns the counts of the keys that were asked for, in the order of the keys.
func (d *Dispatcher) Requests() []RequestStats {
	var out []RequestStats
	for _, a := range protocol.APIs() {
		n := d.counts[a.Key]
		s := RequestStats{API: a.Name, Errors: n.errors.Load(), Seconds: time.Duration(n.nanos.Load()).Seconds(), Buckets: make([]uint64, len(n.buckets))}
		for i := range n.buckets {
			s.Buckets[i] = n.buckets[i].Load()
		}
		if slices.Max(s.Buckets) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// codePlans are, by type, the fields that are an ErrorCode or may hold one.
var codePlans sync.Map

// holdsCode reports whether an answer, or a part of one, has an error code that is not 0.
func holdsCode(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer:
		return !v.IsNil() && holdsCode(v.Elem())
	case reflect.Slice:
		for i := range v.Len() {
			if holdsCode(v.Index(i)) {
				return true
			}
		}
	case reflect.Int16:
		return v.Int() != 0
	case reflect.Struct:
		for _, i := range codeFields(v.Type()) {
			if holdsCode(v.Field(i)) {
				return true
			}
		}
	}
	return false
}

func codeFields(t reflect.Type) []int {
	if known, ok := codePlans.Load(t); ok {
		return known.([]int)
	}
	var out []int
	for i := range t.NumField() {
		f := t.Field(i)
		of := f.Type
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		if f.Name == "ErrorCode" || of.Kind() == reflect.Struct && f.IsExported() && f.Type.Kind() != reflect.Struct && len(codeFields(of)) > 0 {
			out = append(out, i)
		}
	}
	codePlans.Store(t, out)
	return out
}
