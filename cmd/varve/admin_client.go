package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"varve/broker/admin"
)

const (
	maxAnswerBytes = 256 << 20 // of the HTTP API; a row is some 400 bytes
	answerTimeout  = time.Minute
)

// askAdmin sends a request to the HTTP API of a broker; a nil body is a GET, any other one a POST in JSON. The answer is a 200,
// and the caller closes its body.
func askAdmin(ctx context.Context, addr, path string, body any) (*http.Response, error) {
	method, in := http.MethodGet, io.Reader(nil)
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		method, in = http.MethodPost, bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, in)
	if err != nil {
		return nil, fmt.Errorf("--http %s: %w", addr, err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no broker answers HTTP at %s (%w): start one with `varve server`, or name another with --http", addr, err)
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	defer res.Body.Close()
	var p admin.Problem
	if json.NewDecoder(io.LimitReader(res.Body, maxAnswerBytes)).Decode(&p) == nil && p.Error != "" {
		return nil, errors.New(p.Error)
	}
	return nil, fmt.Errorf("%s answers %s: is it the HTTP port of a varve broker?", addr, res.Status)
}

// askJSON asks and reads the whole answer.
func askJSON(ctx context.Context, addr, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	res, err := askAdmin(ctx, addr, path, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if err := json.NewDecoder(io.LimitReader(res.Body, maxAnswerBytes)).Decode(into); err != nil {
		return fmt.Errorf("%s does not answer as a varve broker does: %w", addr, err)
	}
	return nil
}

func getJSON(ctx context.Context, addr, path string, into any) error {
	return askJSON(ctx, addr, path, nil, into)
}

func postJSON(ctx context.Context, addr, path string, body, into any) error {
	return askJSON(ctx, addr, path, body, into)
}
