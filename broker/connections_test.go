package broker

import (
	"net"
	"testing"
	"time"
)

// TestConnectionBounds: 0 is no connection at all; an address with a bound of its own is not held to the others'.
func TestConnectionBounds(t *testing.T) {
	for _, c := range []struct {
		sets []string
		may  bool
	}{
		{[]string{"max.connections=0"}, false},
		{[]string{"max.connections.per.ip=0", "max.connections.per.ip.overrides=10.1.1.1:5"}, false},
		{[]string{"max.connections.per.ip=0", "max.connections.per.ip.overrides=10.1.1.1:5,127.0.0.1:1"}, true},
	} {
		b, _ := start(t, load(t, t.TempDir(), c.sets...))
		conn, err := net.Dial("tcp", b.KafkaAddr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		_, err = conn.Read(make([]byte, 1))
		timeout, ok := err.(net.Error)
		if open := ok && timeout.Timeout(); open != c.may {
			t.Errorf("%v: %v", c.sets, err)
		}
	}
}
