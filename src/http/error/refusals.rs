//! Which status and which code a refusal of each room is: the one place where that is said.

use axum::http::StatusCode;

use crate::allowance;
use crate::booking::{ResourceRefusal, WithdrawRefusal};
use crate::fee::{FeeRefusal, RunRefusal};
use crate::hold;
use crate::http::deed;
use crate::idempotency::KeyReused;
use crate::ledger::{self, CurrencyRefusal};
use crate::outbox::endpoint::NotOff;
use crate::payment::order::OrderRefusal;
use crate::payment::prepaid::GiveBackRefusal;
use crate::payment::prepaid::case::CaseRefusal;
use crate::payment::{self, ImportRefusal, UnbookRefusal};
use crate::pocket;
use crate::provider::payme::link::LinkError;
use crate::provider::telegram::InvoiceRefusal;
use crate::support::{self, DeedRefusal};
use crate::tenant::TenantRefusal;

use super::Problem;

impl From<ledger::Refusal> for Problem {
    fn from(refusal: ledger::Refusal) -> Self {
        use ledger::Refusal;
        let detail = refusal.to_string();
        let index = refusal.index();
        let problem = match refusal {
            Refusal::UnknownTenant { tenant_id, .. } => Self::unknown_tenant(tenant_id),
            Refusal::UnknownCurrency { currency, .. } => Self::unknown_currency(currency),
            Refusal::WrongSign { .. } => {
                Self::unprocessable("wrong_sign", "The amount has the wrong sign for its kind", detail)
            }
            Refusal::ReasonMissing { .. } => Self::unprocessable("reason_missing", "This kind needs a reason", detail),
            Refusal::OriginalMisplaced { .. } => Self::unprocessable(
                "original_misplaced",
                "Exactly what gives something back names its original",
                detail,
            ),
            Refusal::OriginalUnfit { seq, .. } => {
                Self::unprocessable("original_unfit", "The original can't be given back like this", detail)
                    .with("transaction", seq)
            }
            Refusal::OriginalExceeded { seq, left, asked, .. } => {
                Self::conflict("original_exceeded", "More than is left of the original", detail)
                    .with("transaction", seq)
                    .with("left_minor_units", left)
                    .with("asked_minor_units", asked)
            }
            Refusal::AlreadyBooked { seq, .. } => {
                Self::conflict("already_booked", "This event is booked already", detail).with("transaction", seq)
            }
            Refusal::TwiceInBatch { .. } => {
                Self::conflict("twice_in_batch", "The batch names the same event twice", detail)
            }
            Refusal::InsufficientFunds { available, needed, .. } => {
                Self::new(StatusCode::PAYMENT_REQUIRED, "insufficient_funds", "There is not enough money", detail)
                    .with("available_minor_units", available.get())
                    .with("needed_minor_units", needed.get())
            }
            Refusal::PocketClosed { pocket, .. } => {
                Self::conflict("pocket_closed", "The time of this pocket is over", detail)
                    .with("pocket", pocket.as_str())
            }
            Refusal::Overflow { .. } => {
                Self::unprocessable("balance_too_large", "The balance would be too large", detail)
            }
        };
        problem.with("index", index)
    }
}

impl From<ImportRefusal> for Problem {
    fn from(refusal: ImportRefusal) -> Self {
        let detail = refusal.to_string();
        Self::conflict("payment_differs", "The payment of this reference is of other money", detail)
            .with("fields", refusal.fields)
            .with("index", refusal.index)
    }
}

impl From<KeyReused> for Problem {
    fn from(reused: KeyReused) -> Self {
        Self::conflict("idempotency_key_reused", "The idempotency key stands for another request", reused.to_string())
            .with("idempotency_key", reused.key)
            .with("fields", reused.fields)
    }
}

impl From<TenantRefusal> for Problem {
    fn from(refusal: TenantRefusal) -> Self {
        let detail = refusal.to_string();
        match refusal {
            TenantRefusal::Differs { fields, .. } => {
                Self::conflict("tenant_differs", "The tenant exists with other values", detail).with("fields", fields)
            }
        }
    }
}

impl From<CurrencyRefusal> for Problem {
    fn from(refusal: CurrencyRefusal) -> Self {
        let detail = refusal.to_string();
        match refusal {
            CurrencyRefusal::Differs { exponent, .. } => {
                Self::conflict("currency_differs", "The currency exists with another exponent", detail)
                    .with("exponent", exponent)
            }
        }
    }
}

impl From<OrderRefusal> for Problem {
    fn from(refusal: OrderRefusal) -> Self {
        let detail = refusal.to_string();
        match refusal {
            OrderRefusal::UnknownTenant(tenant_id) => Self::unknown_tenant(tenant_id),
            OrderRefusal::UnknownOrder(_) => Self::not_found("order_not_found", detail),
            OrderRefusal::UnknownSlot(_) => Self::not_found("slot_not_found", detail),
            OrderRefusal::SlotGone { slot_id, .. } => {
                Self::conflict("slot_gone", "Nobody can get the slot any more", detail).with("slot_id", slot_id)
            }
            OrderRefusal::Differs { fields, .. } => {
                Self::conflict("order_differs", "The order exists with other values", detail).with("fields", fields)
            }
            OrderRefusal::CannotClose { status, .. } => {
                Self::conflict("order_not_closable", "The order can't be closed", detail)
                    .with("order_status", status.as_str())
            }
        }
    }
}

impl From<ResourceRefusal> for Problem {
    fn from(refusal: ResourceRefusal) -> Self {
        let detail = refusal.to_string();
        match refusal {
            ResourceRefusal::Differs { fields, .. } => {
                Self::conflict("resource_differs", "The resource exists with other values", detail)
                    .with("fields", fields)
            }
            ResourceRefusal::UnknownResource(_) => Self::not_found("resource_not_found", detail),
            ResourceRefusal::Overlaps { starts_at, ends_at, .. } => {
                Self::conflict("slot_overlaps", "Another slot of the resource is in the way", detail)
                    .with("starts_at", starts_at.to_rfc3339())
                    .with("ends_at", ends_at.to_rfc3339())
            }
            ResourceRefusal::Past { starts_at } => {
                Self::unprocessable("slot_past", "The slot would have begun already", detail)
                    .with("starts_at", starts_at.to_rfc3339())
            }
            ResourceRefusal::PricesDiffer { starts_at } => {
                Self::conflict("slot_prices_differ", "The slot exists with other prices", detail)
                    .with("starts_at", starts_at.to_rfc3339())
            }
        }
    }
}

impl From<WithdrawRefusal> for Problem {
    fn from(refusal: WithdrawRefusal) -> Self {
        let detail = refusal.to_string();
        match refusal {
            WithdrawRefusal::UnknownSlot(_) => Self::not_found("slot_not_found", detail),
            WithdrawRefusal::Held { order_id, .. } => {
                Self::conflict("slot_held", "An order holds the slot", detail).with("order_id", order_id.as_str())
            }
            WithdrawRefusal::Booked { order_id, .. } => {
                Self::conflict("slot_booked", "An order has booked the slot", detail)
                    .with("order_id", order_id.as_str())
            }
        }
    }
}

impl From<UnbookRefusal> for Problem {
    fn from(refusal: UnbookRefusal) -> Self {
        let detail = refusal.to_string();
        match refusal {
            UnbookRefusal::UnknownBooking(_) => Self::not_found("booking_not_found", detail),
            UnbookRefusal::Cancelled { cancelled_at, .. } => {
                Self::conflict("booking_cancelled", "The booking was cancelled before", detail)
                    .with("cancelled_at", cancelled_at.to_rfc3339())
            }
            UnbookRefusal::GoesThroughProvider(_) => {
                Self::unprocessable("goes_through_provider", "The provider gives money back by itself only", detail)
            }
            UnbookRefusal::PaymentGone(_) => {
                Self::conflict("payment_gone", "The payment has gone back already", detail)
            }
            UnbookRefusal::Payment(refusal) => refusal.into(),
        }
    }
}

impl<R: Into<Self>> From<deed::DeedRefusal<R>> for Problem {
    fn from(refusal: deed::DeedRefusal<R>) -> Self {
        match refusal {
            deed::DeedRefusal::Key(reused) => reused.into(),
            deed::DeedRefusal::Deed(refusal) => refusal.into(),
        }
    }
}

impl From<GiveBackRefusal> for Problem {
    fn from(refusal: GiveBackRefusal) -> Self {
        let detail = refusal.to_string();
        match refusal {
            GiveBackRefusal::UnknownPayment(_) => Self::not_found("payment_not_found", detail),
            GiveBackRefusal::OtherWay(_) => {
                Self::unprocessable("goes_through_provider", "Its provider takes it back by itself", detail)
            }
            GiveBackRefusal::Gone(_) => Self::conflict("payment_gone", "The payment has gone back already", detail),
            GiveBackRefusal::Asked(_) => Self::conflict("refund_asked", "The payment is on its way back", detail),
            GiveBackRefusal::CaseOpen(_) => Self::conflict("case_open", "A person has to resolve its case", detail),
            GiveBackRefusal::BoughtSlot(_) => {
                Self::unprocessable("goes_through_booking", "Cancel the booking that it paid", detail)
            }
            GiveBackRefusal::StaysSpent(_) => {
                Self::unprocessable("stays_spent", "Its booking was cancelled without giving it back", detail)
            }
            GiveBackRefusal::KeptElsewhere { .. } => {
                Self::unprocessable("kept_elsewhere", "The money is in another wallet", detail)
            }
            GiveBackRefusal::Ledger(refusal) => refusal.into(),
        }
    }
}

impl From<CaseRefusal> for Problem {
    fn from(refusal: CaseRefusal) -> Self {
        let detail = refusal.to_string();
        match refusal {
            CaseRefusal::UnknownCase(_) => Self::not_found("case_not_found", detail),
            CaseRefusal::Resolved { resolved_by, .. } => {
                Self::conflict("case_resolved", "Somebody has resolved the case already", detail)
                    .with("resolved_by", resolved_by)
            }
            CaseRefusal::NoMoney(_) => Self::unprocessable("case_has_no_money", "No money waits for this case", detail),
            CaseRefusal::MoneyWaits(_) => {
                Self::unprocessable("case_money_waits", "Somebody has to say where the money goes", detail)
            }
            CaseRefusal::Payment(refusal) => refusal.into(),
        }
    }
}

/// What the payment room refuses where `/v1` asks it is always about the ledger.
impl From<payment::Refusal> for Problem {
    fn from(refusal: payment::Refusal) -> Self {
        match refusal {
            payment::Refusal::Ledger(refusal) => refusal.into(),
            refusal => Self::conflict("payment_refused", "The payment doesn't allow this", refusal.to_string()),
        }
    }
}

impl From<InvoiceRefusal> for Problem {
    fn from(refusal: InvoiceRefusal) -> Self {
        let detail = refusal.to_string();
        match refusal {
            InvoiceRefusal::UnknownBot => {
                Self::unprocessable("provider_not_configured", "The bot is not set up", detail)
            }
            InvoiceRefusal::OtherCurrency(_) => {
                Self::unprocessable("link_not_possible", "The link can't be made", detail)
            }
            InvoiceRefusal::NotOpen { status, .. } => {
                Self::conflict("order_not_payable", "The order can't be paid", detail)
                    .with("order_status", status.as_str())
            }
            InvoiceRefusal::Call(_) => {
                Self::new(StatusCode::BAD_GATEWAY, "provider_unavailable", "Telegram made no link", detail)
            }
        }
    }
}

impl From<FeeRefusal> for Problem {
    fn from(refusal: FeeRefusal) -> Self {
        let detail = refusal.to_string();
        match refusal {
            FeeRefusal::PlanDiffers { fields, .. } => {
                Self::conflict("plan_differs", "The plan exists with other values", detail).with("fields", fields)
            }
            FeeRefusal::UnknownPlan(_) => Self::not_found("plan_not_found", detail),
            FeeRefusal::UnknownCurrency(currency) => Self::unknown_currency(currency),
            FeeRefusal::UnknownTenant(tenant_id) => Self::unknown_tenant(tenant_id),
            FeeRefusal::UnknownSubscription { .. } => Self::not_found("subscription_not_found", detail),
            FeeRefusal::PriceTooEarly { earliest, .. } => {
                Self::conflict("price_too_early", "The price of a month that has begun is fixed", detail)
                    .with("earliest", earliest.to_string())
            }
            FeeRefusal::PriceDiffers { .. } => {
                Self::conflict("price_differs", "The plan has another price from that month on", detail)
            }
            FeeRefusal::SubscriptionDiffers => {
                Self::conflict("subscription_differs", "The subscription exists with other values", detail)
                    .with("fields", vec!["first_month"])
            }
            FeeRefusal::SubscriptionCancelled { subscription_id, ended_on, .. } => {
                Self::conflict("subscription_cancelled", "The subscription was cancelled", detail)
                    .with("subscription_id", subscription_id)
                    .with("ended_on", ended_on.to_string())
            }
            FeeRefusal::SubscriptionOverlaps { subscription_id, ended_on, .. } => {
                Self::conflict("subscription_overlaps", "Another subscription of the plan pays the month", detail)
                    .with("subscription_id", subscription_id)
                    .with("ended_on", ended_on.map(|day| day.to_string()))
            }
            FeeRefusal::EndsAlready { ended_on } => {
                Self::conflict("subscription_ended", "The subscription ends on another day", detail)
                    .with("ended_on", ended_on.to_string())
            }
            FeeRefusal::EndTooEarly { earliest, .. } => {
                Self::conflict("end_too_early", "A subscription can't end in the past", detail)
                    .with("earliest", earliest.to_string())
            }
        }
    }
}

impl From<RunRefusal> for Problem {
    fn from(refusal: RunRefusal) -> Self {
        let detail = refusal.to_string();
        let report = refusal.report();
        let problem = match refusal {
            RunRefusal::TooManyMonths { months, subscriptions, .. } => {
                Self::conflict("too_many_months", "Somebody would be charged for several months at once", detail)
                    .with("months", months)
                    .with("subscriptions", subscriptions)
            }
            RunRefusal::TooManyOverdue { overdue, decided, .. } => {
                Self::conflict("too_many_overdue", "Too many dues are overdue", detail)
                    .with("overdue_of_months", overdue)
                    .with("decided_of_months", decided)
            }
        };
        problem
            .with("expected", report.expected)
            .with("charged", report.charged)
            .with("overdue", report.overdue)
            .with("open", report.open)
    }
}

impl From<DeedRefusal> for Problem {
    fn from(refusal: DeedRefusal) -> Self {
        match refusal {
            DeedRefusal::Key(reused) => reused.into(),
            DeedRefusal::Desk(refusal) => refusal.into(),
        }
    }
}

impl From<support::Refusal> for Problem {
    fn from(refusal: support::Refusal) -> Self {
        use support::Refusal;
        let detail = refusal.to_string();
        let forbidden = |code, title| Self::new(StatusCode::FORBIDDEN, code, title, detail.clone());
        match refusal {
            Refusal::Ledger(refusal) => refusal.into(),
            Refusal::GoesThroughProvider { seq, .. } => {
                Self::unprocessable("goes_through_provider", "A top-up goes back through its provider", detail)
                    .with("transaction", seq)
            }
            Refusal::GoesThroughBooking { seq, .. } => Self::unprocessable(
                "goes_through_booking",
                "A booking gives its money back by its cancellation",
                detail,
            )
            .with("transaction", seq),
            Refusal::UnknownRequest(_) => Self::not_found("request_not_found", detail),
            Refusal::OwnRequest(request_id) => {
                forbidden("own_request", "Somebody else decides").with("request_id", request_id)
            }
            Refusal::NotYours { request_id, .. } => {
                forbidden("not_your_request", "Only who asked can withdraw").with("request_id", request_id)
            }
            Refusal::Decided { decision, decided_by, .. } => {
                Self::conflict("already_decided", "Somebody has decided already", detail)
                    .with("decision", decision)
                    .with("decided_by", decided_by)
            }
            Refusal::Expired { expired_at, .. } => {
                Self::conflict("request_expired", "The request waited too long", detail)
                    .with("expired_at", expired_at.to_rfc3339())
            }
            Refusal::RoleTooSmall { needed } => {
                forbidden("forbidden", "The caller may not do this").with("role", needed)
            }
        }
    }
}

impl From<NotOff> for Problem {
    fn from(refusal: NotOff) -> Self {
        Self::not_found("endpoint_not_found", refusal.to_string())
    }
}

impl From<LinkError> for Problem {
    fn from(error: LinkError) -> Self {
        Self::unprocessable("link_not_possible", "The link can't be made", error.to_string())
    }
}

impl From<hold::DeedRefusal> for Problem {
    fn from(refusal: hold::DeedRefusal) -> Self {
        match refusal {
            hold::DeedRefusal::Key(reused) => reused.into(),
            hold::DeedRefusal::Hold(refusal) => refusal.into(),
        }
    }
}

impl From<hold::Refusal> for Problem {
    fn from(refusal: hold::Refusal) -> Self {
        use hold::Refusal;
        let detail = refusal.to_string();
        match refusal {
            Refusal::Ledger(refusal) => refusal.into(),
            Refusal::UnknownHold(_) => Self::not_found("hold_not_found", detail),
            Refusal::UnknownTier { .. } => Self::not_found("tier_not_found", detail),
            Refusal::Differs { fields, .. } => {
                Self::conflict("hold_differs", "The id stands for another job", detail).with("fields", fields)
            }
            Refusal::TooManyInFlight { in_flight, max, retry_after_secs } => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_in_flight",
                "As many jobs are at work as may be",
                detail,
            )
            .with("in_flight", in_flight)
            .with("max_in_flight", max)
            .retry_after(retry_after_secs),
            Refusal::InsufficientFunds { available, needed, .. } => {
                Self::new(StatusCode::PAYMENT_REQUIRED, "insufficient_funds", "There is not enough money", detail)
                    .with("available_minor_units", available.get())
                    .with("needed_minor_units", needed.get())
            }
            Refusal::TenantBlocked(status) => {
                Self::new(StatusCode::FORBIDDEN, "tenant_blocked", "The tenant may not place holds", detail)
                    .with("tenant_status", status)
            }
            Refusal::AlreadyEnded { status, charged, fields, .. } => {
                let code = if status == "settled" { "already_settled" } else { "already_released" };
                Self::conflict(code, "The hold has ended", detail)
                    .with("hold_status", status)
                    .with("charged_minor_units", charged.get())
                    .with("fields", fields)
            }
            Refusal::Expired { expired_at, .. } => Self::conflict("hold_expired", "The hold's time is over", detail)
                .with("expired_at", expired_at.to_rfc3339()),
            Refusal::AlreadyStarted { started_at, .. } => {
                Self::conflict("already_started", "The work has begun", detail)
                    .with("started_at", started_at.to_rfc3339())
            }
            Refusal::CostCapExceeded { cost_cap, asked, .. } => {
                Self::unprocessable("cost_cap_exceeded", "The job may not cost so much", detail)
                    .with("cost_cap_minor_units", cost_cap.get())
                    .with("asked_minor_units", asked.get())
            }
            Refusal::CostCapReached { used_micro, cap_micro, .. } => {
                Self::conflict("cost_cap_reached", "The job has used what it may", detail)
                    .with("used_micro", used_micro)
                    .with("cap_micro", cap_micro)
            }
            Refusal::CallDiffers { fields, .. } => {
                Self::conflict("call_differs", "The call was reported with other numbers", detail)
                    .with("fields", fields)
            }
            Refusal::NotMetered(_) => {
                Self::unprocessable("not_metered", "The currency has no price in dollars", detail)
            }
            Refusal::UnknownModel { version, .. } => {
                Self::unprocessable("unknown_model", "The price book doesn't know the model", detail)
                    .with("price_version", version)
            }
            Refusal::NoPriceBook => Self::unprocessable("no_price_book", "There is no price book", detail),
            Refusal::UsageTooLarge => Self::unprocessable("usage_too_large", "The usage is too large", detail),
        }
    }
}

impl From<hold::PriceRefusal> for Problem {
    fn from(refusal: hold::PriceRefusal) -> Self {
        let detail = refusal.to_string();
        match refusal {
            hold::PriceRefusal::VersionTaken { newest, .. } => {
                Self::conflict("price_version_taken", "The price book has another newest version", detail)
                    .with("newest", newest)
            }
        }
    }
}

impl From<pocket::Refusal> for Problem {
    fn from(refusal: pocket::Refusal) -> Self {
        use pocket::Refusal;
        let detail = refusal.to_string();
        match refusal {
            Refusal::Ledger(refusal) => refusal.into(),
            Refusal::MainHasNoRules => Self::unprocessable("main_has_no_rules", "Bought money has no rules", detail),
            Refusal::Differs { fields, .. } => {
                Self::conflict("pocket_differs", "The pocket has other rules", detail).with("fields", fields)
            }
            Refusal::EndsInPast { .. } => {
                Self::unprocessable("expires_in_past", "The pocket would be over already", detail)
            }
            Refusal::UnknownPocket(_) => Self::not_found("pocket_not_found", detail),
            Refusal::Closed(_) => Self::conflict("pocket_closed", "The time of this pocket is over", detail),
        }
    }
}

impl From<allowance::Refusal> for Problem {
    fn from(refusal: allowance::Refusal) -> Self {
        use allowance::Refusal;
        let detail = refusal.to_string();
        match refusal {
            Refusal::UnknownAllowance(_) => Self::not_found("allowance_not_found", detail),
            Refusal::UnknownTier { .. } => Self::not_found("tier_not_found", detail),
            Refusal::Differs { fields, .. } => {
                Self::conflict("allowance_differs", "The id stands for another allowance", detail)
                    .with("fields", fields)
            }
            Refusal::UnknownTenant(tenant_id) => Self::unknown_tenant(tenant_id),
            Refusal::UnknownPlan(_) => Self::not_found("plan_not_found", detail),
        }
    }
}
