package main

import (
	"net"
	"slices"
	"strings"
	"testing"
)

func TestBootstrapServers(t *testing.T) {
	for list, want := range map[string][]string{
		"localhost:9092": {"localhost:9092"}, "localhost": {"localhost:9092"}, "a:1, b": {"a:1", "b:9092"}, "[::1]:5": {"[::1]:5"}, "[::1]": {"[::1]:9092"}, "10.0.0.1": {"10.0.0.1:9092"},
	} {
		if got, err := bootstrapSeeds(list); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v %v, want %v", list, got, err, want)
		}
	}
	for _, list := range []string{"", ":9092", "a:", "a:x", "a:99999", "a:1,,b:2", "::1:9092", "http://a:1"} {
		if got, err := bootstrapSeeds(list); err == nil {
			t.Errorf("%q is %v", list, got)
		}
	}
	if code, _, errs := shell(t, "topic", "list", "--bootstrap-server", "a:x"); code != exitUsage || !strings.Contains(errs, "port x") {
		t.Error(code, errs)
	}
}

// TestWhatIsNoBroker: something that takes connections and never answers, and a port for HTTP, are told apart from a broker.
func TestWhatIsNoBroker(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n := start(t, t.TempDir())
	for _, addr := range []string{l.Addr().String(), n.http} {
		for _, command := range []string{"topic list", "consume x", "produce x"} {
			args := append(strings.Fields(command), "--timeout", "300ms", "--bootstrap-server", addr)
			if code, _, errs := shell(t, args...); code != exitRuntime || !strings.Contains(errs, "does not answer as a Kafka broker does") {
				t.Errorf("%v: exit %d: %s", args, code, errs)
			}
		}
	}
}
