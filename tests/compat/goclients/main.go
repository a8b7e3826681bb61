package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"
)

var (
	bootstrap = os.Getenv("COMPAT_BOOTSTRAP")
	name      = os.Getenv("COMPAT_NAME")
)

const (
	groupRecords = 4000
	waitMax      = 40 * time.Second
)

// sample is a record as users write it; a nil key or value is a null.
type sample struct {
	key, value []byte
	headers    []header
	at         time.Time
}

type header struct {
	key   string
	value []byte
}

// samples have keys, headers, timestamps within retention, a tombstone, empty and null values.
func samples() []sample {
	start := time.Now().Add(-time.Hour).Truncate(time.Second)
	out := []sample{
		{key: []byte("key"), value: []byte("value"), at: start, headers: []header{{"trace", []byte{0, 1, 2}}, {"note", []byte("x")}}},
		{key: []byte("gone"), at: start.Add(time.Second)},
		{value: []byte{}, at: start.Add(2 * time.Second)},
		{key: []byte{}, value: []byte("umlaut äöü"), at: start.Add(3 * time.Second)},
	}
	for i := range 2000 {
		out = append(out, sample{key: fmt.Appendf(nil, "k%d", i%17), value: bytes.Repeat([]byte("xy"), i%50+7),
			at: start.Add(4*time.Second + time.Duration(i)*time.Millisecond)})
	}
	return out
}

func big() []sample {
	value := make([]byte, 900<<10)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range value {
		value[i] = byte(rng.Uint32())
	}
	return []sample{{key: []byte("big"), value: value, at: time.Now().Truncate(time.Second)}}
}

// same compares a record as read with the i-th sample; a client may show a null as empty.
func same(i int, offset int64, got, want sample) error {
	switch {
	case offset != int64(i):
		return fmt.Errorf("record %d has offset %d", i, offset)
	case !bytes.Equal(got.key, want.key):
		return fmt.Errorf("key of %d: %q, want %q", i, got.key, want.key)
	case !bytes.Equal(got.value, want.value):
		return fmt.Errorf("value of %d: %d bytes, want %d", i, len(got.value), len(want.value))
	case !got.at.Equal(want.at):
		return fmt.Errorf("timestamp of %d: %v, want %v", i, got.at, want.at)
	case fmt.Sprint(got.headers) != fmt.Sprint(want.headers):
		return fmt.Errorf("headers of %d: %v, want %v", i, got.headers, want.headers)
	}
	return nil
}

// wait polls until ok says so.
func wait(what string, ok func() (bool, error)) error {
	until := time.Now().Add(waitMax)
	for {
		done, err := ok()
		if done {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("waited in vain: %s: %v", what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: goclients sarama|kafka-go CASE")
		os.Exit(2)
	}
	runs := map[string]func(kind, what string) error{"sarama": runSarama, "kafka-go": runKafkaGo}
	kind, what, _ := strings.Cut(os.Args[2], "-")
	if err := runs[os.Args[1]](kind, what); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
