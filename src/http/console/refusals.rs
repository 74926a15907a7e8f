//! Why the desk says no, in the reader's language and in whole money.

use super::money;
use super::words::Words;
use crate::ids::InvalidName;
use crate::ledger;
use crate::money::{Currency, MinorUnits};
use crate::payment::prepaid::GiveBackRefusal;
use crate::support::{DeedRefusal, Refusal};
use crate::tenant::Locale;

/// The words of a refusal. Those that no form of the console can meet stay as the API says them.
pub fn words(language: Locale, currency: Option<&Currency>, refusal: &Refusal) -> String {
    let money = |units: i64| {
        currency.map_or_else(|| units.to_string(), |currency| money::text(MinorUnits::new(units), currency))
    };
    let say = |uz: String, ru: String, en: String| match language {
        Locale::Uz => uz,
        Locale::Ru => ru,
        Locale::En => en,
    };
    match refusal {
        Refusal::Ledger(ledger::Refusal::OriginalExceeded { seq, left, asked, .. }) => {
            let (left, asked) = (money(*left), money(*asked));
            say(
                format!("{seq}-qatordan {left} qaytarish mumkin, soʻralgani {asked}"),
                format!("из строки {seq} можно вернуть {left}, а запрошено {asked}"),
                format!("row {seq} has {left} left to give back, and {asked} were asked for"),
            )
        }
        Refusal::Ledger(ledger::Refusal::InsufficientFunds { available, needed, .. }) => {
            let (available, needed) = (money(available.get()), money(needed.get()));
            say(
                format!("mavjud {available}, kerak {needed}"),
                format!("доступно {available}, нужно {needed}"),
                format!("{available} are available, and {needed} are needed"),
            )
        }
        Refusal::Ledger(ledger::Refusal::OriginalUnfit { seq, .. }) => say(
            format!("{seq}-qatorni qaytarib boʻlmaydi"),
            format!("строку {seq} вернуть нельзя"),
            format!("row {seq} can't be given back"),
        ),
        Refusal::GoesThroughProvider { seq, .. } => say(
            format!("{seq}-qator toʻldirish: u faqat provayder orqali qaytadi"),
            format!("строка {seq} — пополнение: оно возвращается только через провайдера"),
            format!("row {seq} is a top-up: it goes back only through its provider"),
        ),
        Refusal::GoesThroughBooking { seq, .. } => say(
            format!("{seq}-qator — band qilish: uni bekor qilish pulni qaytaradi"),
            format!("строка {seq} — бронь: деньги вернёт её отмена"),
            format!("row {seq} is a booking: its cancellation gives the money back"),
        ),
        Refusal::UnknownRequest(id) => {
            say(format!("{id}-soʻrov yoʻq"), format!("заявки {id} нет"), format!("there is no request {id}"))
        }
        Refusal::OwnRequest(_) => {
            let words = Words::of(language);
            words.own_request.to_owned()
        }
        Refusal::NotYours { requested_by, .. } => say(
            format!("bu soʻrovni faqat {requested_by} qaytarib oladi"),
            format!("отозвать заявку может только {requested_by}"),
            format!("only {requested_by} can withdraw this request"),
        ),
        Refusal::Decided { request_id, decided_by, .. } => say(
            format!("{request_id}-soʻrovni {decided_by} allaqachon hal qilgan"),
            format!("заявку {request_id} уже решил(а) {decided_by}"),
            format!("{decided_by} has decided about request {request_id} already"),
        ),
        Refusal::Expired { request_id, .. } => say(
            format!("{request_id}-soʻrovning muddati tugagan; qayta soʻrang"),
            format!("срок заявки {request_id} истёк; создайте новую"),
            format!("request {request_id} has ended; ask again"),
        ),
        Refusal::RoleTooSmall { needed } => {
            let w = Words::of(language);
            format!("{} {} ({needed})", w.error_forbidden, w.role_name(needed))
        }
        Refusal::Ledger(ledger::Refusal::UnknownTenant { tenant_id, .. }) => {
            format!("{} {tenant_id}", Words::of(language).error_no_tenant)
        }
        Refusal::Ledger(other) => format!("{} {other}", Words::of(language).error_ledger),
    }
}

/// The same for a deed.
pub fn deed_words(language: Locale, currency: Option<&Currency>, refusal: &DeedRefusal) -> String {
    match refusal {
        DeedRefusal::Desk(refusal) => words(language, currency, refusal),
        DeedRefusal::Key(_) => Words::of(language).error_form.to_owned(),
    }
}

/// Why a payment isn't given back.
pub fn give_back(language: Locale, refusal: &GiveBackRefusal) -> String {
    let w = Words::of(language);
    let words = match refusal {
        GiveBackRefusal::UnknownPayment(_) => w.error_not_found,
        GiveBackRefusal::OtherWay(_) => w.topup_returns,
        GiveBackRefusal::Gone(_) => w.moment_refunded,
        GiveBackRefusal::Asked(_) => w.stars_on_their_way,
        GiveBackRefusal::CaseOpen(_) => w.stars_in_case,
        GiveBackRefusal::BoughtSlot(_) => w.stars_bought_slot,
        GiveBackRefusal::StaysSpent(_) => w.stars_stay_spent,
        GiveBackRefusal::KeptElsewhere { .. } => w.stars_elsewhere,
        GiveBackRefusal::Ledger(refusal) => return self::words(language, None, &refusal.clone().into()),
    };
    words.to_owned()
}

/// Why a name or a text that was typed in isn't one.
pub fn name(language: Locale, error: &InvalidName) -> String {
    let w = Words::of(language);
    match error.what {
        "reason" | "the reason" => w.rule_reason.to_owned(),
        "tenant_id" | "the tenant" => w.rule_tenant.to_owned(),
        _ if language == Locale::En => format!("{} {}", error.what, error.rule),
        _ => w.error_fields.to_owned(),
    }
}
