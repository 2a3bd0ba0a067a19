package device

import (
	"encoding/json"
	"errors"

	"farhand/wire"
)

// BadArgs is INVALID_ARGUMENT for args that can't be decoded, with err as why. It
// repeats none of what they hold, which may be data: what encoding/json doesn't
// say by its types is said by form, how a family's own types are written. What is
// INVALID_ARGUMENT already stays as it is.
func BadArgs(err error, form string) error {
	if errors.Is(err, wire.InvalidArgument) {
		return err
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return wire.Errorf(wire.InvalidArgument, "the arguments can't be read: %s must not be a %s", Clean(e.Field), Clean(e.Value)).
			With("field", Clean(e.Field))
	}
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		form = "no valid JSON"
	}
	return wire.Errorf(wire.InvalidArgument, "the arguments can't be read: %s", form)
}
