package protocol

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestAPITable(t *testing.T) {
	rows := APIs()
	if !slices.IsSortedFunc(rows, func(a, b APIRange) int { return int(a.Key) - int(b.Key) }) {
		t.Error("the table is not ordered")
	}
	for _, r := range rows {
		req := kmsg.RequestForKey(r.Key)
		if req == nil || r.Min > r.Max || r.Max > req.MaxVersion() {
			t.Fatalf("%s %d-%d is not what kmsg can do", r.Name, r.Min, r.Max)
		}
		kafka := strings.NewReplacer("ACLs", "Acls", "ProducerID", "ProducerId") // as messages are named there, and its metrics
		if want := kafka.Replace(kmsg.NameForKey(r.Key)); r.Name != want {
			t.Errorf("key %d is called %s, not %s", r.Key, r.Name, want)
		}
		if got, ok := RangeOf(r.Key); !ok || got != r {
			t.Errorf("RangeOf(%d) = %v", r.Key, got)
		}
		if Supported(r.Key, r.Min-1) || Supported(r.Key, r.Max+1) || !Supported(r.Key, r.Max) || !Supported(r.Key, max(r.Min, 3)) && r.Max >= 3 {
			t.Errorf("%s: the range served is not the one advertised", r.Name)
		}
		if schemas[r.Key] == nil {
			t.Errorf("%s has no schema", r.Name)
		}
	}
	if len(schemas) != len(rows) {
		t.Error("there are schemas of keys that are not advertised")
	}
	if Supported(KeyProduce, 2) || !Supported(KeyProduce, 3) || Supported(-1, 0) || Supported(999, 0) {
		t.Error("wrong keys or versions are served")
	}
}

func TestParseHeaderAgainstKmsg(t *testing.T) {
	for _, r := range APIs() {
		for v := r.Min; v <= r.Max; v++ {
			for _, opts := range [][]kmsg.RequestFormatterOpt{nil, {kmsg.FormatterClientID("")}, {kmsg.FormatterClientID("some client")}} {
				req := kmsg.RequestForKey(r.Key)
				req.SetVersion(v)
				frame := kmsg.NewRequestFormatter(opts...).AppendRequest(nil, req, -77)[4:]
				h, body, err := ParseHeader(frame)
				if err != nil || h.Key != r.Key || h.Version != v || h.CorrelationID != -77 || h.ClientIDNull != (opts == nil) {
					t.Fatalf("%s %d: %+v, %v", r.Name, v, h, err)
				}
				if want := req.AppendTo(nil); !slices.Equal(body, want) {
					t.Fatalf("%s %d: body % x, want % x", r.Name, v, body, want)
				}
			}
		}
	}
}

func TestParseHeaderOfUnknownAPIVersions(t *testing.T) {
	frame := []byte{0, 18, 0, 99, 0, 0, 0, 7, 0xff, 0xff, 0xff}
	h, _, err := ParseHeader(frame)
	if err != nil || h.Key != KeyAPIVersions || h.Version != 99 || h.CorrelationID != 7 {
		t.Fatalf("%+v, %v", h, err)
	}
}

func TestParseHeaderRefuses(t *testing.T) {
	good := []byte{0, 3, 0, 9, 0, 0, 0, 7, 0, 1, 'c', 1, 5, 2, 'x', 'y', 42}
	if h, body, err := ParseHeader(good); err != nil || h.ClientID != "c" || len(body) != 1 {
		t.Fatalf("%+v % x %v", h, body, err)
	}
	for n := range len(good) - 1 {
		if _, _, err := ParseHeader(good[:n]); !errors.Is(err, InvalidRequest) {
			t.Errorf("%d bytes give %v", n, err)
		}
	}
	bad := slices.Clone(good)
	binary.BigEndian.PutUint16(bad[8:], 0xfffe)
	if _, _, err := ParseHeader(bad); !errors.Is(err, InvalidRequest) {
		t.Errorf("a client id of -2 bytes gives %v", err)
	}
}

func TestResponseHeader(t *testing.T) {
	for _, r := range APIs() {
		for v := r.Min; v <= r.Max; v++ {
			resp := kmsg.RequestForKey(r.Key).ResponseKind()
			resp.SetVersion(v)
			want := 4
			if resp.IsFlexible() && r.Key != KeyAPIVersions {
				want = 5
			}
			if got := AppendResponseHeader(nil, r.Key, v, 0x01020304); len(got) != want || got[0] != 1 || got[3] != 4 {
				t.Errorf("%s %d: header % x", r.Name, v, got)
			}
			frame := Encode([]byte("before"), resp, 5)[6:]
			if int(binary.BigEndian.Uint32(frame)) != len(frame)-4 || !slices.Equal(frame[4+want:], resp.AppendTo(nil)) {
				t.Errorf("%s %d: frame % x", r.Name, v, frame)
			}
		}
	}
}

func FuzzParseHeader(f *testing.F) {
	f.Add([]byte{0, 3, 0, 9, 0, 0, 0, 7, 0, 1, 'c', 1, 5, 2, 'x', 'y', 42})
	f.Add([]byte{0, 18, 0, 99, 0, 0, 0, 7})
	f.Add([]byte{0, 0, 0, 3, 0, 0, 0, 7, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, frame []byte) {
		h, body, err := ParseHeader(frame)
		if err != nil && !errors.Is(err, InvalidRequest) {
			t.Fatal(err)
		}
		if err == nil && len(body) > len(frame)-8 || h.ClientIDNull && h.ClientID != "" {
			t.Fatalf("%+v with %d of %d bytes", h, len(body), len(frame))
		}
	})
}
