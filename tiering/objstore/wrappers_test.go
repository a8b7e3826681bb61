package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaulty(NewMem(nil), 1)
		s := WithRetry(f, RetryPolicy{MaxAttempts: 4})
		f.Add(Fault{Kind: FaultError, Verb: VerbPut, Times: 2}, Fault{Kind: FaultThrottle, Verb: VerbPut})
		start := time.Now()
		mustPut(t, s, "a", []byte("x"))
		if f.Calls(VerbPut) != 4 {
			t.Fatalf("%d attempts", f.Calls(VerbPut))
		}
		// Half to all of 100 ms, 200 ms, and four times 400 ms.
		if took := time.Since(start); took < 950*time.Millisecond || took > 1900*time.Millisecond {
			t.Fatalf("waited %v", took)
		}
		f.Add(Fault{Kind: FaultThrottle, Times: -1})
		if _, err := s.Head(t.Context(), "a"); !IsThrottled(err) || f.Calls(VerbHead) != 4 {
			t.Fatalf("after %d attempts: %v", f.Calls(VerbHead), err)
		}
		f.Clear()
		f.Add(Fault{Kind: FaultError, Verb: VerbGet, Err: ErrForbidden, Times: -1})
		if _, err := s.Get(t.Context(), "a", 0, -1, ""); !errors.Is(err, ErrForbidden) || f.Calls(VerbGet) != 1 {
			t.Fatalf("a refusal was retried %d times: %v", f.Calls(VerbGet), err)
		}
	})
}

func TestRetryBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaulty(NewMem(nil), 1)
		f.Add(Fault{Kind: FaultThrottle, Times: -1})
		s := WithRetry(f, RetryPolicy{MaxAttempts: 1000, Total: time.Minute})
		start := time.Now()
		if _, err := s.Head(t.Context(), "a"); !IsThrottled(err) {
			t.Fatal(err)
		}
		if took := time.Since(start); took > time.Minute {
			t.Fatalf("%v of a minute", took)
		}
		// A context that would end in the wait ends the retries at once, with the reason.
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := s.Head(ctx, "a"); !IsThrottled(err) || ctx.Err() != nil {
			t.Fatal(err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, cancel)
		if _, err := s.Head(ctx, "a"); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	})
}

func TestRetryListAndDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaulty(NewMem(nil), 1)
		s := WithRetry(f, RetryPolicy{})
		keys := []string{"a", "b", "c", "d", "e"}
		for _, k := range keys {
			mustPut(t, s, k, nil)
		}
		f.Add(Fault{Kind: FaultLostReply, Verb: VerbList, Times: 3})
		if got := listAll(t, s, "", ""); !slices.Equal(got, keys) {
			t.Fatalf("listing cut three times: %q", got)
		}
		f.Add(Fault{Kind: FaultPartialDelete, Verb: VerbDelete, Times: 2})
		if failed, err := s.Delete(t.Context(), keys); err != nil || len(failed) > 0 {
			t.Fatal(failed, err)
		}
		if got := listAll(t, s, "", ""); len(got) > 0 {
			t.Fatalf("left: %q", got)
		}
		f.Add(Fault{Kind: FaultPartialDelete, Verb: VerbDelete, Times: -1, Err: ErrForbidden})
		failed, err := s.Delete(t.Context(), []string{"x", "y", "z"})
		if err != nil || len(failed) != 2 || !errors.Is(failed[0], ErrForbidden) {
			t.Fatal(failed, err)
		}
		f.Clear()
		f.Add(Fault{Kind: FaultPartialDelete, Verb: VerbDelete, Times: -1})
		if failed, err = s.Delete(t.Context(), []string{"x", "y"}); err != nil || len(failed) != 1 || failed[0].Key != "x" {
			t.Fatal(failed, err)
		}
	})
}

// TestConditionalRetryMeetsItself: the documented ambiguity, and the way out of it.
func TestConditionalRetryMeetsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaulty(NewMem(nil), 1)
		s := WithRetry(f, RetryPolicy{})
		f.Add(Fault{Kind: FaultLostReply, Verb: VerbPut})
		_, err := s.Put(t.Context(), "owner", BytesBody([]byte("token 1")), PutOptions{IfNoneMatch: true})
		if !errors.Is(err, ErrPrecondition) {
			t.Fatal(err)
		}
		wantBytes(t, s, "owner", 0, -1, []byte("token 1"))
	})
}

func TestDeadlineCountsOnlyTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = time.Second
		f := NewFaulty(NewMem(nil), 1)
		s := WithDeadline(f, Deadlines{Put: limit, Get: limit, Head: limit, List: limit, Delete: limit})
		// A source that takes a minute is not the store's fault.
		slow := &failingReaderAt{data: make([]byte, 10), hook: func() { time.Sleep(time.Minute) }}
		if _, err := s.Put(t.Context(), "a", Body{ReaderAt: slow, Size: 10}, PutOptions{}); err != nil {
			t.Fatal(err)
		}
		body, err := s.Get(t.Context(), "a", 0, -1, "")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // nor a reader that takes its time
		if _, err := io.ReadAll(body); err != nil {
			t.Fatal(err)
		}
		body.Close()
		if err := s.List(t.Context(), "", "", func(ObjectInfo) bool { time.Sleep(time.Minute); return true }); err != nil {
			t.Fatal(err)
		}
		for _, verb := range []Verb{VerbPut, VerbGet, VerbHead, VerbList, VerbDelete} {
			f.Add(Fault{Kind: FaultHang, Verb: verb})
		}
		for verb, call := range map[Verb]func() error{
			VerbPut:    func() error { _, err := s.Put(t.Context(), "a", BytesBody(nil), PutOptions{}); return err },
			VerbGet:    func() error { _, err := s.Get(t.Context(), "a", 0, -1, ""); return err },
			VerbHead:   func() error { _, err := s.Head(t.Context(), "a"); return err },
			VerbList:   func() error { return s.List(t.Context(), "", "", nil) },
			VerbDelete: func() error { _, err := s.Delete(t.Context(), []string{"a"}); return err },
		} {
			start := time.Now()
			if err := call(); !IsRetryable(err) || time.Since(start) != limit {
				t.Errorf("%s: %v after %v", verb, err, time.Since(start))
			}
		}
	})
}

func TestBandwidth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		b := NewBandwidth(mib, 2*mib)
		s := WithBandwidth(WithDeadline(NewMem(nil), Deadlines{Put: time.Second}), b)
		data := randomBytes(1, 10*mib)
		start := time.Now()
		mustPut(t, s, "a", data)
		if took := time.Since(start); took < 9*time.Second || took > 11*time.Second {
			t.Fatalf("10 MiB at 1 MiB/s took %v", took)
		}
		start = time.Now()
		wantBytes(t, s, "a", 0, -1, data)
		if took := time.Since(start); took < 4*time.Second || took > 6*time.Second {
			t.Fatalf("10 MiB at 2 MiB/s took %v", took)
		}
		// The bound is lifted while a body flows.
		b.Set(mib, mib/10)
		timer := time.AfterFunc(10*time.Second, func() { b.Set(0, 0) })
		defer timer.Stop()
		start = time.Now()
		wantBytes(t, s, "a", 0, -1, data)
		if took := time.Since(start); took > 12*time.Second {
			t.Fatalf("unbounded after 10 s, took %v", took)
		}
		// A context ends the wait.
		b.Set(1024, 1024)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start = time.Now()
		if _, err := getRange(ctx, s, "a", 0, -1); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if _, err := s.Put(ctx, "b", BytesBody(data), PutOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Fatalf("3 s of context took %v", took)
		}
	})
}

// TestBandwidthTurns: bodies that share a bound flow alike, inside of an object, and a
// bound that is raised frees at once who waits under the old one.
func TestBandwidthTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		b := NewBandwidth(0, mib)
		s := WithBandwidth(NewMem(nil), b)
		mustPut(t, s, "a", randomBytes(1, 64*mib))
		var got [4]atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range got {
			wg.Go(func() {
				body, err := s.Get(ctx, "a", 0, -1, "")
				if err != nil {
					t.Error(err)
					return
				}
				defer body.Close()
				p := make([]byte, 100_000*(i+1)) // greed does not pay
				for err == nil {
					var n int
					n, err = body.Read(p)
					got[i].Add(int64(n))
				}
			})
		}
		time.Sleep(20 * time.Second)
		for i := range got {
			if n := got[i].Load(); n < 4*mib || n > 6*mib {
				t.Errorf("body %d has %d bytes after 20 s at a fourth of 1 MiB/s", i, n)
			}
		}
		b.Set(0, 1)
		time.Sleep(time.Second)
		b.Set(0, 0)
		synctest.Wait()
		for i := range got {
			if n := got[i].Load(); n != 64*mib {
				t.Errorf("body %d still waits after %d bytes", i, n)
			}
		}
		cancel()
		wg.Wait()
	})
}

// TestBandwidthFlows: who has many bodies gets what others with one get, and what nobody waits for flows only where that
// leaves something.
func TestBandwidthFlows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		b := NewBandwidth(0, mib)
		s := WithBandwidth(NewMem(nil), b)
		mustPut(t, s, "a", randomBytes(1, 64*mib))
		var greedy, modest, idle Flow
		var waited atomic.Bool
		got := map[*Flow]*atomic.Int64{&greedy: {}, &modest: {}, &idle: {}}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		flow := func(f *Flow, urgent func() bool) {
			wg.Go(func() {
				body, err := s.Get(WithFlow(ctx, f, urgent), "a", 0, -1, "")
				if err != nil {
					t.Error(err)
					return
				}
				defer body.Close()
				for p := make([]byte, mib); err == nil; {
					var n int
					n, err = body.Read(p)
					got[f].Add(int64(n))
				}
			})
		}
		check := func(when string, f *Flow, wantMiB float64) {
			t.Helper()
			if is := float64(got[f].Swap(0)) / mib; is < wantMiB-0.8 || is > wantMiB+0.8 {
				t.Errorf("%s: %.2f MiB, not %.2f", when, is, wantMiB)
			}
		}
		yes := func() bool { return true }
		for range 8 {
			flow(&idle, waited.Load)
		}
		time.Sleep(10 * time.Second)
		check("alone, not waited for", &idle, 10)
		for range 7 {
			flow(&greedy, yes)
		}
		flow(&modest, yes)
		time.Sleep(20 * time.Second)
		check("seven bodies", &greedy, 10)
		check("one body", &modest, 10)
		check("not waited for, beside those who are", &idle, 0)
		waited.Store(true)
		time.Sleep(30 * time.Second)
		check("seven bodies of three", &greedy, 10)
		check("one body of three", &modest, 10)
		check("waited for at last", &idle, 10)
		cancel()
		wg.Wait()
		if b.down.mu.Lock(); len(b.down.waiting) > 0 {
			t.Errorf("%d still wait", len(b.down.waiting))
		}
		b.down.mu.Unlock()
	})
}

func TestCounters(t *testing.T) {
	now := time.Unix(0, 0)
	c := NewCounters(S3StandardPrices(), func() time.Time { now = now.Add(time.Second); return now })
	f := NewFaulty(NewMem(nil), 1)
	s := Counted(f, c)
	mustPut(t, s, "a", []byte("12345"))
	wantBytes(t, s, "a", 1, 3, []byte("234"))
	f.Add(Fault{Kind: FaultThrottle, Verb: VerbPut})
	if _, err := s.Put(t.Context(), "b", BytesBody([]byte("x")), PutOptions{Cause: "test"}); err == nil {
		t.Fatal("no error")
	}
	listAll(t, s, "", "")
	if _, err := s.Head(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Delete(t.Context(), []string{"a"}); err != nil {
		t.Fatal(err)
	}
	want := []Usage{
		{Verb: VerbDelete, Calls: 1, Requests: 1, Seconds: 1},
		{Verb: VerbGet, Cause: "test", Calls: 1, Requests: 1, Bytes: 3, Seconds: 3, Dollars: 4e-7},
		{Verb: VerbHead, Calls: 1, Requests: 1, Seconds: 1, Dollars: 4e-7},
		{Verb: VerbList, Calls: 1, Requests: 1, Seconds: 1, Dollars: 5e-6},
		{Verb: VerbPut, Cause: "test", Calls: 2, Requests: 2, Errors: 1, Bytes: 5, Seconds: 2, Dollars: 1e-5},
	}
	if got := c.Snapshot(); !slices.Equal(got, want) {
		t.Fatalf("\n%+v\nwant\n%+v", got, want)
	}
	for i := range 10 * maxCauses {
		body, err := s.Get(t.Context(), "gone", 0, 1, string(rune('A'+i)))
		if !errors.Is(err, ErrNotFound) {
			t.Fatal(body, err)
		}
	}
	if n := len(c.Snapshot()); n > maxCauses+5 {
		t.Fatalf("%d rows", n)
	}
}

func TestFaulty(t *testing.T) {
	f := NewFaulty(NewMem(nil), 42)
	ctx, data := t.Context(), randomBytes(2, 1000)
	mustPut(t, f, "a/1", data)

	f.Add(Fault{Kind: FaultWrongBytes, Verb: VerbGet, Skip: 1}, Fault{Kind: FaultTruncated, Verb: VerbGet})
	// The first fault passes over one call; the second has it.
	if _, err := getRange(ctx, f, "a/1", 0, -1); !IsRetryable(err) {
		t.Fatalf("truncated: %v", err)
	}
	got, err := getRange(ctx, f, "a/1", 0, -1)
	if err != nil || bytes.Equal(got, data) || len(got) != len(data) {
		t.Fatalf("wrong bytes: %d %v", len(got), err)
	}
	wantBytes(t, f, "a/1", 0, -1, data)

	f.Add(Fault{Kind: FaultLate, Verb: VerbPut, Key: "a/2"})
	if _, err := f.Put(ctx, "a/2", BytesBody(data), PutOptions{}); !IsRetryable(err) {
		t.Fatal(err)
	}
	wantAbsent(t, f, "a/2")
	if err := f.Release(ctx); err != nil {
		t.Fatal(err)
	}
	wantBytes(t, f, "a/2", 0, -1, data)

	f.Add(Fault{Kind: FaultStaleList, Verb: VerbList})
	mustPut(t, f, "a/3", nil)
	if keys := listAll(t, f, "a/", ""); !slices.Equal(keys, []string{"a/1", "a/2"}) {
		t.Fatalf("stale list: %q", keys)
	}
	if keys := listAll(t, f, "a/", ""); len(keys) != 3 {
		t.Fatalf("fresh list: %q", keys)
	}
	f.Add(Fault{Kind: FaultStaleList, Verb: VerbList})
	if _, err := f.Delete(ctx, []string{"a/2"}); err != nil {
		t.Fatal(err)
	}
	if keys := listAll(t, f, "a/", ""); len(keys) != 3 {
		t.Fatalf("stale list after a delete: %q", keys)
	}
	mustPut(t, f, "a/2", data)

	f.Add(Fault{Kind: FaultReset, Verb: VerbPut}, Fault{Kind: FaultWrongBytes, Verb: VerbPut}, Fault{Kind: FaultReset, Verb: VerbList}, Fault{Kind: FaultReset, Verb: VerbGet})
	for range 2 {
		if _, err := f.Put(ctx, "a/4", BytesBody(data), PutOptions{}); !IsRetryable(err) {
			t.Fatal(err)
		}
		wantAbsent(t, f, "a/4")
	}
	n := 0
	if err := f.List(ctx, "a/", "", func(ObjectInfo) bool { n++; return true }); !IsRetryable(err) || n != 1 {
		t.Fatalf("half a list: %d %v", n, err)
	}
	if _, err := getRange(ctx, f, "a/1", 0, -1); !IsRetryable(err) {
		t.Fatalf("half a body: %v", err)
	}
	if f.Met() != 9 {
		t.Fatalf("%d faults were met", f.Met())
	}

	f.Add(Fault{Kind: FaultPartialDelete, Verb: VerbDelete})
	failed, err := f.Delete(ctx, []string{"a/1", "a/2", "a/3"})
	if err != nil || len(failed) != 2 || len(listAll(t, f, "a/", "")) != 2 {
		t.Fatalf("partial delete: %v %v", failed, err)
	}
}

// TestFaultyIsDeterministic: the same seed plays the same faults.
func TestFaultyIsDeterministic(t *testing.T) {
	play := func(seed uint64) (outcomes []bool) {
		f := NewFaulty(NewMem(nil), seed)
		f.Add(Fault{Kind: FaultError, Percent: 30, Times: -1})
		for range 200 {
			_, err := f.Delete(t.Context(), nil)
			outcomes = append(outcomes, err != nil)
		}
		return outcomes
	}
	first := play(7)
	if !slices.Equal(first, play(7)) || slices.Equal(first, play(8)) {
		t.Fatal("the seed does not decide")
	}
	n := 0
	for _, failed := range first {
		if failed {
			n++
		}
	}
	if n < 30 || n > 90 {
		t.Fatalf("%d of 200 at 30%%", n)
	}
}

// TestUsageByGroup: what keys belong to is kept apart, within a bound, and the sums do not change by it.
func TestUsageByGroup(t *testing.T) {
	ctx := t.Context()
	c := NewCounters(S3StandardPrices(), nil)
	c.GroupBy(func(key string) string { g, _, _ := strings.Cut(key, "/"); return g })
	s := Counted(NewMem(nil), c)
	for _, key := range []string{"a/1", "a/2", "b/1"} {
		if _, err := s.Put(ctx, key, BytesBody([]byte("12345")), PutOptions{Cause: "upload"}); err != nil {
			t.Fatal(err)
		}
		r, err := s.Get(ctx, key, 0, 3, "read")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
	}
	rows := map[string]Usage{}
	for _, u := range c.Detailed() {
		rows[string(u.Verb)+" "+u.Group] = u
	}
	if len(rows) != 4 || rows["put a"].Requests != 2 || rows["put a"].Bytes != 10 || rows["get b"].Bytes != 3 {
		t.Errorf("%+v", rows)
	}
	sums := c.Snapshot()
	if len(sums) != 2 || sums[1].Requests != 3 || sums[1].Bytes != 15 || sums[1].Dollars < 1.4e-5 || sums[1].Dollars > 1.6e-5 || sums[0].Bytes != 9 {
		t.Errorf("%+v", sums)
	}
	for i := range maxUsageRows + 100 {
		c.add(VerbHead, "", fmt.Sprintf("k%d/", i), Usage{Requests: 1})
	}
	if n := len(c.Detailed()); n > maxUsageRows+3 {
		t.Errorf("%d rows", n)
	}
	for _, u := range c.Snapshot() {
		if u.Verb == VerbHead && u.Requests != maxUsageRows+100 {
			t.Errorf("%d heads counted", u.Requests)
		}
	}
}
