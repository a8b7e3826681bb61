package broker

import (
	"context"
	"time"
)

// heartbeat keeps this broker's session at the controller and holds its clock against the controller's, until ctx ends. A beat
// that fails is followed by the next: who is fenced for silence hears of it in the Image.
func (b *Broker) heartbeat(ctx context.Context) error {
	tick := time.NewTicker(b.cfg.Duration("broker.heartbeat.interval.ms"))
	defer tick.Stop()
	for {
		asked := time.Now()
		pulse, err := b.control.Heartbeat(ctx, b.cfg.NodeID(), b.epoch)
		if err == nil {
			b.clock.Compare(pulse.Now, time.Since(asked))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
