package usb

import (
	"context"
	"time"

	"farhand/usb/usbfs"
	"farhand/wire"
)

// Test and measurement instruments (USBTMC 1.0) have to be told when an answer
// is no longer waited for. One that isn't keeps it for the next command, or
// answers nothing any more.

// The class, and the numbers of table 15 (requests), 16 (status) and 2
// (messages).
const (
	classApplication = 0xfe
	subclassTMC      = 0x03

	reqAbortOut      = 1 // INITIATE_ABORT_BULK_OUT
	reqCheckAbortOut = 2
	reqAbortIn       = 3 // INITIATE_ABORT_BULK_IN
	reqCheckAbortIn  = 4
	reqClear         = 5 // INITIATE_CLEAR
	reqCheckClear    = 6

	statusSuccess       = 0x01
	statusPending       = 0x02
	statusOtherTransfer = 0x81 // TRANSFER_NOT_IN_PROGRESS: there is one, with another tag

	msgRequestIn       = 2   // REQUEST_DEV_DEP_MSG_IN
	msgRequestVendorIn = 127 // REQUEST_VENDOR_SPECIFIC_IN

	endpointIn  = 0xa2 // class request to an endpoint that reads
	interfaceIn = 0xa1 // the same to an interface
)

// Bounds of a recovery. An instrument that does more than this is broken, or not
// one.
const (
	recoveryTime  = 3 * time.Second // with MaxTimeout less than what the platform waits
	recoveryStep  = 500 * time.Millisecond
	recoveryPoll  = 20 * time.Millisecond
	recoveryDrain = 4 << 20
	recoverySteps = 64 // that are told of
)

func isInstrument(f *usbfs.Interface) bool {
	return f.Class == classApplication && f.SubClass == subclassTMC
}

// note looks at what is sent to an instrument: the tag of a message that asks
// for an answer is what that answer is aborted by.
func (x *session) note(f found, data []byte) (tag byte, instrument bool) {
	if !isInstrument(f.Interface) || f.Kind != usbfs.Bulk || len(data) < 12 {
		return 0, false
	}
	if data[0] == msgRequestIn || data[0] == msgRequestVendorIn {
		x.tags[int(f.Number)] = data[1]
	}
	return data[1], true
}

// recovery is one run of the sequence.
type recovery struct {
	x      *session
	f      *usbfs.Interface
	ctx    context.Context
	result wire.USBRecovery
}

// abort tells an instrument that the transfer on this endpoint is not waited for
// any more, throws away what is left of it, and clears the instrument's buffers.
func (o *operation) abort(x *session, f found, tag byte) *wire.USBRecovery {
	ctx, cancel := context.WithTimeout(o.ctx, recoveryTime)
	defer cancel()
	r := &recovery{x: x, f: f.Interface, ctx: ctx}
	if f.In() {
		r.abortIn(f.Endpoint, tag)
	} else {
		r.abortOut(f.Endpoint, tag)
	}
	r.result.OK = r.clear()
	delete(x.tags, int(f.Number))
	o.Trace.BytesIn += r.result.Drained
	return &r.result
}

// tell notes a step. An instrument that is never ready makes for many.
func (r *recovery) tell(step string) {
	if len(r.result.Steps) < recoverySteps {
		r.result.Steps = append(r.result.Steps, step)
	}
}

// ask is one class request that reads: its status, and what else it said.
func (r *recovery) ask(step string, s setup, length int) (status byte, more []byte) {
	r.tell(step)
	ctx, cancel := context.WithTimeout(r.ctx, recoveryStep)
	defer cancel()
	data := make([]byte, length)
	n, err := r.x.controlTransfer(ctx, s, data)
	if err != nil || n < 1 {
		return 0, nil
	}
	return data[0], data[1:n]
}

// settle asks again while the instrument is at it, and drains when it says that
// it has data.
func (r *recovery) settle(step string, s setup, length int, in *usbfs.Endpoint) bool {
	for r.ctx.Err() == nil {
		status, more := r.ask(step, s, length)
		if status != statusPending {
			return status == statusSuccess
		}
		if in != nil && len(more) > 0 && more[0]&1 != 0 {
			r.drain(*in)
		} else {
			pause(r.ctx, recoveryPoll)
		}
	}
	return false
}

func (r *recovery) abortIn(e usbfs.Endpoint, tag byte) {
	s := setup{endpointIn, reqAbortIn, uint16(tag), uint16(e.Address)}
	status, more := r.ask("abort bulk-in", s, 2)
	if status == statusOtherTransfer && len(more) > 0 {
		s.value = uint16(more[0])
		status, _ = r.ask("abort bulk-in", s, 2)
	}
	if status != statusSuccess {
		return // nothing of it is under way
	}
	r.drain(e)
	r.settle("check abort", setup{endpointIn, reqCheckAbortIn, 0, uint16(e.Address)}, 8, &e)
}

func (r *recovery) abortOut(e usbfs.Endpoint, tag byte) {
	if status, _ := r.ask("abort bulk-out", setup{endpointIn, reqAbortOut, uint16(tag), uint16(e.Address)}, 2); status != statusSuccess {
		return
	}
	r.settle("check abort", setup{endpointIn, reqCheckAbortOut, 0, uint16(e.Address)}, 8, nil)
	_ = r.x.h.ClearHalt(e.Address) // 4.2.1.3: the host clears it; what follows shows whether that helped
}

// drain reads until a packet that isn't full, or nothing more comes.
func (r *recovery) drain(e usbfs.Endpoint) {
	r.tell("drain")
	if e.MaxPacket == 0 {
		return
	}
	data := make([]byte, piece-piece%e.MaxPacket)
	for r.result.Drained < recoveryDrain {
		ctx, cancel := context.WithTimeout(r.ctx, recoveryStep)
		n, err := r.x.one(ctx, usbfs.Bulk, e.Address, data, false)
		cancel()
		r.result.Drained += n
		if err != nil || n < len(data) {
			return
		}
	}
}

// clear empties both of the instrument's buffers.
func (r *recovery) clear() bool {
	n := uint16(r.f.Number)
	if status, _ := r.ask("clear", setup{interfaceIn, reqClear, 0, n}, 1); status != statusSuccess {
		return false
	}
	var in *usbfs.Endpoint
	for i, e := range r.f.Endpoints {
		if e.In() && e.Kind == usbfs.Bulk {
			in = &r.f.Endpoints[i]
		}
	}
	if !r.settle("check clear", setup{interfaceIn, reqCheckClear, 0, n}, 2, in) {
		return false
	}
	for _, e := range r.f.Endpoints {
		if !e.In() && e.Kind == usbfs.Bulk { // 4.2.1.7: as the last step
			r.tell("clear bulk-out halt")
			return r.x.h.ClearHalt(e.Address) == nil
		}
	}
	return true
}
