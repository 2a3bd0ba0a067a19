package relay

import (
	"farhand/relay/events"
	"farhand/relay/metrics"
	"farhand/relay/oauth"
)

// published has the owner's feed told of what was recorded. Where that is the
// intent, the effect follows at once.
func published(feed events.Feed, record func(oauth.Event) error) func(oauth.Event) error {
	return func(e oauth.Event) error {
		if err := record(e); err != nil {
			return err
		}
		if t := feedType(e); t != "" && e.Owner != "" {
			feed.Publish(e.Owner, events.Event{
				Type: t, Machine: e.Machine, Holder: e.Holder, Subject: e.Subject, Address: e.Address, Reason: e.Reason,
			})
		}
		return nil
	}
}

// counted counts what is recorded.
func counted(m *metrics.Metrics, record func(oauth.Event) error) func(oauth.Event) error {
	return func(e oauth.Event) error {
		m.Audited(e.Op, e.Refused)
		return record(e)
	}
}

// feedType is the type of event that an owner is told; empty for what isn't told.
func feedType(e oauth.Event) events.Type {
	if e.Refused {
		switch e.Op {
		case oauth.OpLogin:
			return events.LoginRefused
		case oauth.OpAnchorDiffers:
			return events.AuditDiffers
		}
		return ""
	}
	switch e.Op {
	case oauth.OpLogin:
		return events.Login
	case oauth.OpApproved:
		return events.MachinePaired
	case oauth.OpDenied:
		return events.MachineDenied
	case oauth.OpConsented:
		return events.ClientAllowed
	case oauth.OpFamilyRevoked:
		return events.AccessRevoked
	case oauth.OpApprovalChanged:
		return events.GrantsChanged
	case oauth.OpMachineRemoved:
		return events.MachineRemoved
	case oauth.OpTokenCreated:
		return events.TokenCreated
	case oauth.OpTokenRevoked:
		return events.TokenRevoked
	case oauth.OpClaimCreated:
		return events.ClaimCreated
	case oauth.OpClaimRedeemed:
		return events.ClaimUsed
	case oauth.OpClaimRevoked:
		return events.ClaimRevoked
	}
	return ""
}
