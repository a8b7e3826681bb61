package protocol

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

func TestNewUUID(t *testing.T) {
	seen := map[UUID]bool{}
	for range 5000 {
		u := NewUUID()
		s := u.String()
		if seen[u] || u.IsZero() || len(s) != 22 || s[0] == '-' || u[6]>>4 != 4 || u[8]>>6 != 2 {
			t.Fatalf("bad id %s", s)
		}
		seen[u] = true
	}
	if !(UUID{15: 99}).reserved() || (UUID{15: 100}).reserved() || (UUID{0: 1}).reserved() {
		t.Error("reserved ids are 0 to 99")
	}
}

func TestUUIDText(t *testing.T) {
	// The metadata topic's id in Kafka's text form (Uuid.java: ONE_UUID).
	if got := (UUID{15: 1}).String(); got != "AAAAAAAAAAAAAAAAAAAAAQ" {
		t.Error(got)
	}
	rapid.Check(t, func(t *rapid.T) {
		u := UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		for _, s := range []string{u.String(), u.String() + "=="} {
			if got, err := ParseUUID(s); err != nil || got != u {
				t.Fatalf("ParseUUID(%s) = %s, %v", s, got, err)
			}
		}
		text, err := json.Marshal(u)
		if err != nil || string(text) != `"`+u.String()+`"` {
			t.Fatalf("JSON %s, %v", text, err)
		}
		var back UUID
		if err := json.Unmarshal(text, &back); err != nil || back != u {
			t.Fatalf("from JSON %s, %v", back, err)
		}
	})
	for _, s := range []string{"", "a", "AAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAA+/", "AAAAAAAAAAAAAAAAAAAAAAA=", "AAAAAAAAAAAAAAAAAAAAAAAA", string(make([]byte, 22))} {
		if _, err := ParseUUID(s); err == nil {
			t.Errorf("ParseUUID(%q) gives no error", s)
		}
	}
}
