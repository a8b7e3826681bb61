package api

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol"
)

// InitProducerId, key 22, versions 0 to 5 (InitProducerIdRequest.json).
//
// Without a transactional id the answer is always a new producer id with epoch
// 0, also when the request (version 3 and later) names an id and epoch it had
// before: Kafka's TransactionCoordinator does the same, idempotent producers bump
// their epoch on their own. An id without an epoch, or the reverse, is
// InvalidRequest, as is an empty transactional id. A transactional id is
// NotCoordinator: no broker of this cluster coordinates transactions, and
// FindCoordinator, to which clients then turn, says InvalidRequest, which they
// tell their user instead of trying for ever. When no new block of ids is to be
// had, CoordinatorLoadInProgress makes clients retry.
func (d *Dispatcher) initProducerID(c call, req *kmsg.InitProducerIDRequest) kmsg.Response {
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	id, err := d.newProducerID(c, req)
	if resp.ErrorCode = code(err); err == nil {
		resp.ProducerID, resp.ProducerEpoch = id, 0
	}
	return resp
}

func (d *Dispatcher) newProducerID(c call, req *kmsg.InitProducerIDRequest) (int64, error) {
	switch {
	case req.Version >= 3 && (req.ProducerID == -1) != (req.ProducerEpoch == -1):
		return -1, protocol.InvalidRequest
	case req.TransactionalID != nil && *req.TransactionalID == "":
		return -1, protocol.InvalidRequest
	case req.TransactionalID != nil:
		return -1, protocol.NotCoordinator
	}
	ctx, cancel := context.WithTimeout(c.ctx, producerIDTimeoutMs*time.Millisecond)
	defer cancel()
	id, err := d.producerIDs.take(ctx)
	if err != nil {
		return -1, protocol.CoordinatorLoadInProgress
	}
	return id, nil
}

// producerIDTimeoutMs bounds the wait for a new block; the request has no timeout
// of its own for this.
const producerIDTimeoutMs = 10_000

// idBlock hands out the ids of one block after the other.
type idBlock struct {
	fetch func(context.Context) (first, count int64, err error)
	turn  chan struct{} // holds one token: whoever has it may touch what follows

	next, left int64
}

func (b *idBlock) init(fetch func(context.Context) (first, count int64, err error)) {
	b.fetch = fetch
	b.turn = make(chan struct{}, 1)
	b.turn <- struct{}{}
}

// take returns an id that was never given out before.
func (b *idBlock) take(ctx context.Context) (int64, error) {
	select {
	case <-b.turn:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { b.turn <- struct{}{} }()
	if b.left == 0 {
		first, count, err := b.fetch(ctx)
		if err != nil {
			return 0, err
		}
		if count <= 0 {
			return 0, &protocol.InvariantError{What: "an empty block of producer ids"}
		}
		b.next, b.left = first, count
	}
	id := b.next
	b.next, b.left = b.next+1, b.left-1
	return id, nil
}
