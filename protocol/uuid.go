package protocol

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
)

// UUID is a 128-bit id: topic ids, directory ids, segment ids. The zero value
// means "none".
type UUID [16]byte

// reservedUUIDs is how many of the lowest ids Kafka keeps for special meanings
// (Uuid.java and DirectoryId.java: zero, one = metadata topic, the directory
// ids UNASSIGNED, LOST, MIGRATING and the rest of the first hundred).
const reservedUUIDs = 100

// NewUUID returns a random version 4 UUID. As in Kafka (Uuid.randomUuid) its
// text never begins with '-', so that tools do not take it for an option, and
// it is never a reserved id.
func NewUUID() UUID {
	for {
		var u UUID
		// crypto/rand.Read never fails: it ends the program instead.
		_, _ = rand.Read(u[:])
		u[6] = u[6]&0x0f | 0x40
		u[8] = u[8]&0x3f | 0x80
		if u[0]>>2 != 62 && !u.reserved() {
			return u
		}
	}
}

func (u UUID) reserved() bool {
	for _, b := range u[:15] {
		if b != 0 {
			return false
		}
	}
	return u[15] < reservedUUIDs
}

// IsZero reports whether u is the zero id.
func (u UUID) IsZero() bool { return u == UUID{} }

// String returns Kafka's text form: URL-safe base64 without padding, 22
// characters.
func (u UUID) String() string { return base64.RawURLEncoding.EncodeToString(u[:]) }

// MarshalText is String, for JSON and logs.
func (u UUID) MarshalText() ([]byte, error) {
	return base64.RawURLEncoding.AppendEncode(nil, u[:]), nil
}

// UnmarshalText is ParseUUID, for JSON.
func (u *UUID) UnmarshalText(text []byte) error {
	v, err := ParseUUID(string(text))
	if err != nil {
		return err
	}
	*u = v
	return nil
}

// ParseUUID reads the text form that String writes; padding is accepted.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	enc := base64.RawURLEncoding
	if len(s) == 24 {
		enc = base64.URLEncoding
	}
	if len(s) != 22 && len(s) != 24 {
		return u, fmt.Errorf("protocol: id %.32q has %d characters, want 22 of base64", s, len(s))
	}
	b, err := enc.DecodeString(s)
	if err != nil || len(b) != len(u) {
		return u, fmt.Errorf("protocol: id %q is not 16 bytes in URL-safe base64", s)
	}
	return UUID(b), nil
}
