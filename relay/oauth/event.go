package oauth

import (
	"context"
	"log/slog"
)

// Event is one line of the relay's audit log: who did what. It never carries a
// secret.
type Event struct {
	Op      string
	Owner   string // opaque id, if known
	Holder  string // the login or token that asked, if any
	Machine string // machine id, if it concerns one
	Family  string // token family, if it concerns one
	Subject string // the account, token, claim that it is about
	Address string // where it came from, if from outside
	Reason  string
	Refused bool // it was asked for and refused
}

// The events.
const (
	OpLogin           = "LOGIN"
	OpLogout          = "LOGOUT"
	OpOwnerSetup      = "OWNER_SETUP"
	OpSetupMinted     = "SETUP_TOKEN_CREATED"
	OpDeviceAsked     = "DEVICE_AUTHORIZATION_REQUESTED"
	OpApproved        = "MACHINE_APPROVED"
	OpDenied          = "MACHINE_DENIED"
	OpCodeMissed      = "USER_CODE_UNKNOWN"
	OpConsented       = "CLIENT_AUTHORIZED"
	OpTokensIssued    = "TOKENS_ISSUED"
	OpFamilyRevoked   = "FAMILY_REVOKED"
	OpMachineBound    = "MACHINE_BOUND"
	OpApprovalChanged = "APPROVAL_CHANGED"
	OpMachineRemoved  = "MACHINE_REMOVED"
	OpLabelsChanged   = "LABELS_CHANGED"
	OpDefaultChanged  = "DEFAULT_MACHINE_CHANGED"
	OpTokenCreated    = "TOKEN_CREATED"
	OpTokenRevoked    = "TOKEN_REVOKED"
	OpClaimCreated    = "CLAIM_CREATED"
	OpClaimRedeemed   = "CLAIM_REDEEMED"
	OpClaimRevoked    = "CLAIM_REVOKED"
	OpAnchorDiffers   = "AUDIT_ANCHOR_DIFFERS"
)

// intend records what is about to be done; if it can't be recorded, it must not
// be done.
func (s *Server) intend(e Event) error {
	if s.recorder == nil {
		return nil
	}
	return s.recorder(e)
}

// record records what was done or refused already.
func (s *Server) record(e Event) {
	if err := s.intend(e); err != nil {
		s.log.LogAttrs(context.Background(), slog.LevelError, "relay audit log failed",
			slog.String("op", e.Op), slog.String("err", err.Error()))
	}
}
