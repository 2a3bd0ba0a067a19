package daemon

import (
	"errors"
	"testing"

	"farhand/provision/request"
	"farhand/wire"
)

func TestSettingsAreTheOwnersOnly(t *testing.T) {
	for _, c := range []struct {
		who wire.Caller
		ok  bool
	}{
		{wire.Caller{Owner: "o", Holder: "l", OwnLogin: true}, true},
		{wire.Caller{Owner: "o", Holder: "t"}, false},
		{wire.Caller{Owner: "o", OwnLogin: true}, false},
		{wire.Caller{Holder: "l", OwnLogin: true}, false},
		{wire.Caller{}, false},
	} {
		if err := ownersOnly(c.who); (err == nil) != c.ok || !c.ok && !errors.Is(err, wire.CapabilityNotGranted) {
			t.Errorf("%+v: %v", c.who, err)
		}
	}
}

func TestSettingsErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		code wire.Code
	}{
		{request.ErrNoHelper, wire.FeatureNotSupported},
		{&request.Error{Code: request.Refused, Message: "timezone: none"}, wire.InvalidArgument},
		{&request.Error{Code: request.Unavailable, Message: "read-only"}, wire.ReadOnlyDisk},
		{errors.New("odd"), wire.InternalError},
	} {
		if got := wire.CodeOf(settingsError(c.err)); got != c.code {
			t.Errorf("%v: %s, want %s", c.err, got, c.code)
		}
	}
	e := wire.AsError(settingsError(&request.Error{Code: request.Refused, Message: "timezone: none"}))
	if e.Details["field"] != "timezone" || settingsError(nil) != nil {
		t.Errorf("%+v", e)
	}
}
