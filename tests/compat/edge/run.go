package edge

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Case is one call.
type Case struct {
	Name string
	// request makes the request, after whatever has to come before it.
	request func(e *env) (kmsg.Request, error)
	// raw is sent in place of a request: everything after the size. sized is sent as it is, with the size.
	raw, sized []byte
}

// apiVersionsKey is the one key whose unknown versions are answered.
const apiVersionsKey = 18

// Result is what came of a Case.
type Result struct {
	Case
	Request string // as text
	Codes   string // of the answer; "closed" when the broker closed the connection, "no answer" when it said nothing; raw frames: "answered"
}

// Cases returns the list.
func Cases() []Case {
	var all []Case
	for _, part := range [][]Case{
		protocolCases(), metadataCases(), topicCases(), produceCases(), batchCases(), fetchCases(), sessionCases(), offsetCases(),
		describeConfigCases(), topicConfigCases(), brokerConfigCases(), tierCases(), internalCases(),
		otherResourceCases(), moreMetadataCases(), moreFetchCases(), moreTopicCases(), recordCases(), describeCases(),
		coordinatorCases(), joinCases(), staticCases(), syncCases(), heartbeatCases(), leaveCases(), commitCases(), fetchOffsetCases(),
		listGroupCases(), deleteGroupCases(), producerIDCases(), aclCases(), absentCases(), bodyCases(), frameCases(),
	} {
		all = append(all, part...)
	}
	return all
}

// Run sends all cases to the broker at addr, which must be alone in its cluster and fresh.
func Run(ctx context.Context, addr string) ([]Result, error) {
	e := &env{ctx: ctx, addr: addr}
	defer e.letGo()
	if err := e.setUp(); err != nil {
		return nil, fmt.Errorf("set up: %w", err)
	}
	var out []Result
	for _, c := range Cases() {
		r, err := e.run(c)
		if err != nil {
			return out, fmt.Errorf("%s: %w", c.Name, err)
		}
		out = append(out, r)
	}
	return out, nil
}

func (e *env) run(c Case) (r Result, err error) {
	r.Case = c
	delete(e.names, "text "+e.call)
	e.call = c.Name
	e.names["text "+e.call] = "group"
	if c.raw != nil {
		c.sized = withSize(c.raw)
	}
	if c.sized != nil {
		return e.runRaw(c)
	}
	req, err := c.request(e)
	if err != nil {
		return r, err
	}
	r.Request = e.textOf(req)
	resp, err := e.ask(req)
	switch {
	case err == nil:
		r.Codes = e.codesOf(resp)
	case errors.Is(err, errClosed), errors.Is(err, errSilent):
		r.Codes = err.Error()
	default:
		return r, err
	}
	return r, nil
}

func (e *env) runRaw(c Case) (r Result, err error) {
	r.Case, r.Request = c, "raw "+hex.EncodeToString(c.raw)
	if c.raw == nil {
		r.Request = "sized " + hex.EncodeToString(c.sized)
	}
	body, err := e.exchange(c.sized)
	switch {
	case err == nil && len(body) >= 2 && c.raw != nil && c.raw[1] == apiVersionsKey:
		r.Codes = fmt.Sprint(int16(body[0])<<8 | int16(body[1])) // of a version 0 body
	case err == nil:
		r.Codes = "answered"
	case errors.Is(err, errClosed), errors.Is(err, errSilent):
		r.Codes = err.Error()
	default:
		return r, err
	}
	return r, nil
}

// plain is the request of a case that needs nothing before it.
func plain(req kmsg.Request) func(*env) (kmsg.Request, error) {
	return func(*env) (kmsg.Request, error) { return req, nil }
}
