package protocol

import (
	"context"
	"errors"
	"fmt"
)

// Error is a Kafka error code with a message for the client.
type Error struct {
	Code    ErrorCode
	Message string
}

// Error implements error.
func (e *Error) Error() string {
	if e.Message == "" {
		return e.Code.Error()
	}
	return e.Code.Name() + ": " + e.Message
}

// Unwrap lets errors.Is compare an *Error with a plain ErrorCode.
func (e *Error) Unwrap() error { return e.Code }

// Errorf returns an *Error with a formatted message.
func Errorf(code ErrorCode, format string, args ...any) error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// CorruptionError says that stored bytes are not what was written.
type CorruptionError struct {
	Where string // file, object or structure, with the position
	What  string
}

// Error implements error.
func (e *CorruptionError) Error() string { return "corruption in " + e.Where + ": " + e.What }

// InvariantError says that the program broke a promise of its own: a bug.
type InvariantError struct{ What string }

// Error implements error.
func (e *InvariantError) Error() string { return "broken invariant: " + e.What }

// CodeOf returns the Kafka code to answer for err: None for nil, the code of an
// ErrorCode or *Error in its chain, KafkaStorageError for a *CorruptionError,
// RequestTimedOut for context.DeadlineExceeded, else UnknownServerError.
func CodeOf(err error) ErrorCode {
	if err == nil {
		return None
	}
	var (
		typed *Error
		code  ErrorCode
		bad   *CorruptionError
	)
	switch {
	case errors.As(err, &typed):
		return typed.Code
	case errors.As(err, &code):
		return code
	case errors.As(err, &bad):
		return KafkaStorageError
	case errors.Is(err, context.DeadlineExceeded):
		return RequestTimedOut
	}
	return UnknownServerError
}

// MessageOf returns the text for a response's error message field: the message
// of an *Error, the text of an ErrorCode, "" for nil, else err.Error().
func MessageOf(err error) string {
	if err == nil {
		return ""
	}
	var typed *Error
	if errors.As(err, &typed) && typed.Message != "" {
		return typed.Message
	}
	var code ErrorCode
	if errors.As(err, &code) {
		return code.Text()
	}
	return err.Error()
}
