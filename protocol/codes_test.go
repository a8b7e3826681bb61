package protocol

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// retriableInKafka are the codes where Errors.java of Apache Kafka 4.4.0 and kerr
// disagree; Kafka is right.
var retriableInKafka = map[ErrorCode]bool{
	BrokerNotAvailable: false, ConcurrentTransactions: true, ShareSessionNotFound: true, InvalidShareSessionEpoch: true,
}

// renamed holds the code whose name Kafka changed and kerr kept.
var renamed = map[ErrorCode]string{NotLeaderOrFollower: "NOT_LEADER_OR_FOLLOWER"}

func TestCodesAgreeWithKerr(t *testing.T) {
	for code := UnknownServerError; code <= ControllerIDNotRegistered; code++ {
		if code == None {
			continue
		}
		want, ok := kerr.ErrorForCode(int16(code)).(*kerr.Error)
		if !ok || want.Code != int16(code) {
			t.Fatalf("kerr does not know code %d", code)
		}
		name := want.Message
		if other, ok := renamed[code]; ok {
			name = other
		}
		if code.Name() != name {
			t.Errorf("code %d is called %s, want %s", code, code.Name(), name)
		}
		retriable, differs := retriableInKafka[code]
		if !differs {
			retriable = want.Retriable
		}
		if code.Retriable() != retriable {
			t.Errorf("%s retriable is %v, want %v", name, code.Retriable(), retriable)
		}
		if text := code.Text(); !strings.HasSuffix(text, ".") || code.Error() != name+": "+text {
			t.Errorf("%s has text %q and error %q", name, text, code.Error())
		}
	}
	if kerr.ErrorForCode(int16(ControllerIDNotRegistered)+1) != error(kerr.UnknownServerError) {
		t.Error("kerr knows more codes than the table")
	}
	for _, code := range []ErrorCode{-2, 137, 32767, -32768} {
		if code.Retriable() || code.Name() != fmt.Sprintf("ERROR_%d", int16(code)) {
			t.Errorf("unknown code %d gives %s", int16(code), code.Error())
		}
	}
}

func TestCodeOf(t *testing.T) {
	for _, c := range []struct {
		err     error
		code    ErrorCode
		message string
	}{
		{nil, None, ""},
		{UnknownTopicID, UnknownTopicID, UnknownTopicID.Text()},
		{fmt.Errorf("while: %w", UnknownTopicID), UnknownTopicID, UnknownTopicID.Text()},
		{Errorf(InvalidConfig, "no %s", "way"), InvalidConfig, "no way"},
		{fmt.Errorf("while: %w", Errorf(InvalidConfig, "no")), InvalidConfig, "no"},
		{&Error{Code: InvalidConfig}, InvalidConfig, InvalidConfig.Text()},
		{&CorruptionError{Where: "a", What: "b"}, KafkaStorageError, "corruption in a: b"},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), RequestTimedOut, "x: context deadline exceeded"},
		{&InvariantError{What: "z"}, UnknownServerError, "broken invariant: z"},
		{errors.New("q"), UnknownServerError, "q"},
	} {
		if got := CodeOf(c.err); got != c.code {
			t.Errorf("CodeOf(%v) = %s, want %s", c.err, got.Name(), c.code.Name())
		}
		if got := MessageOf(c.err); got != c.message {
			t.Errorf("MessageOf(%v) = %q, want %q", c.err, got, c.message)
		}
	}
	if err := Errorf(InvalidConfig, "x"); !errors.Is(err, InvalidConfig) || errors.Is(err, InvalidRequest) {
		t.Error("errors.Is does not see the code of an *Error")
	}
}

func TestErrorTexts(t *testing.T) {
	if got := Errorf(InvalidConfig, "k is bad").Error(); got != "INVALID_CONFIG: k is bad" {
		t.Error(got)
	}
	if got := (&Error{Code: InvalidConfig}).Error(); got != InvalidConfig.Error() {
		t.Error(got)
	}
}
