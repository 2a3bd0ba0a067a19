package request

import (
	"context"
	"errors"
	"os"

	"farhand/wire"
)

// Answer does what one line asks for and returns the line of the answer, both
// without line end.
func Answer(ctx context.Context, h Handler, line []byte) []byte { return answerWith(ctx, h, line, nil) }

// answerWith is Answer for a line with which a file may have come.
func answerWith(ctx context.Context, h Handler, line []byte, file *os.File) []byte {
	b, err := encode(answerTo(ctx, h, line, file))
	if err != nil {
		b, _ = encode(failure(err)) // two short texts
	}
	return b
}

func answerTo(ctx context.Context, h Handler, line []byte, file *os.File) answer {
	var c call
	if err := decode(line, &c); err != nil {
		return failure(errorf(Malformed, "not a request: %v", err))
	}
	switch c.Request {
	case showPairing:
		return with(ctx, c, h.ShowPairing, Pairing.check)
	case showStatus:
		return with(ctx, c, h.ShowStatus, Status.check)
	case offline:
		return with(ctx, c, h.Offline, nil)
	case setClockHint:
		return with(ctx, c, h.SetClockHint, nil)
	case paired:
		return without(ctx, c, h.Paired)
	case online:
		return without(ctx, c, h.Online)
	case facts:
		var f Facts
		a := without(ctx, c, func(ctx context.Context) (err error) {
			f, err = h.Facts(ctx)
			return err
		})
		if a.OK {
			a.Facts = &f
		}
		return a
	case settings:
		var s wire.Settings
		a := without(ctx, c, func(ctx context.Context) (err error) {
			s, err = h.Settings(ctx)
			return err
		})
		return a.withSettings(s)
	case changeSettings:
		var s wire.Settings
		a := with(ctx, c, func(ctx context.Context, change wire.SettingsChange) (err error) {
			s, err = h.ChangeSettings(ctx, change)
			return err
		}, checkChange)
		return a.withSettings(s)
	case keepNetworks:
		return with(ctx, c, h.KeepNetworks, nil)
	case installOllama, removeOllama:
		keeper, ok := h.(OllamaKeeper)
		if !ok {
			return failure(errorf(Unavailable, "the local model's server isn't kept here"))
		}
		if c.Request == removeOllama {
			return with(ctx, c, keeper.RemoveOllama, nil)
		}
		return with(ctx, c, func(ctx context.Context, r InstallOllama) error {
			if file == nil {
				return errorf(Malformed, "no archive came with it")
			}
			return keeper.InstallOllama(ctx, r, file)
		}, InstallOllama.check)
	}
	return failure(errorf(Unknown, "no such request"))
}

func (a answer) withSettings(s wire.Settings) answer {
	if a.OK {
		a.Settings = &s
	}
	return a
}

func with[T any](ctx context.Context, c call, do func(context.Context, T) error, check func(T) error) answer {
	var args T
	return c.answer(&args, func() error {
		if check == nil {
			return nil
		}
		return check(args)
	}, func() error { return do(ctx, args) })
}

// answer reads the arguments, checks them, and does what is asked with them.
func (c call) answer(args any, check, do func() error) answer {
	err := decode(c.Args, args)
	if err != nil {
		err = errorf(Malformed, "%s: %v", c.Request, err)
	}
	if err == nil {
		err = check()
	}
	if err == nil {
		err = do()
	}
	return done(err)
}

func without(ctx context.Context, c call, do func(context.Context) error) answer {
	if len(c.Args) > 0 {
		return failure(errorf(Malformed, "%s takes no arguments", c.Request))
	}
	return done(do(ctx))
}

func done(err error) answer {
	if err != nil {
		return failure(err)
	}
	return answer{OK: true}
}

func failure(err error) answer {
	code := Failed
	if c, ok := errors.AsType[Code](err); ok {
		code = c
	}
	return answer{Code: code, Message: clip(err.Error(), MaxText)}
}
