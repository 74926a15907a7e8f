//! What a payer reads when the answer is no. Telegram shows it in the payment form.

use crate::payment::prepaid::No;
use crate::tenant::Locale;

/// The language of a payer by what their Telegram says (`ru`, `uz-Latn`, `en-GB`); Uzbek when it is silent.
pub(super) fn language(code: Option<&str>) -> Locale {
    let code = code.unwrap_or("uz").to_ascii_lowercase();
    match code.split(['-', '_']).next() {
        Some("uz") => Locale::Uz,
        // Neighbours whose Telegram isn't in one of our languages read Russian rather than English.
        Some("ru" | "kk" | "ky" | "tg" | "tk" | "be" | "uk") => Locale::Ru,
        _ => Locale::En,
    }
}

/// Why the answer is no.
#[must_use]
pub const fn refusal(no: No, language: Locale) -> &'static str {
    match (no, language) {
        (No::UnknownOrder, Locale::Uz) => "Bunday buyurtma yo‘q. Botda yangi hisob oling.",
        (No::UnknownOrder, Locale::Ru) => "Такого заказа нет. Получите новый счёт в боте.",
        (No::UnknownOrder, Locale::En) => "There is no such order. Get a new invoice from the bot.",
        (No::WrongPayer, Locale::Uz) => "Bu hisob boshqa odam uchun. Botda o‘zingizga hisob oling.",
        (No::WrongPayer, Locale::Ru) => "Этот счёт для другого человека. Получите свой счёт в боте.",
        (No::WrongPayer, Locale::En) => "This invoice is somebody else's. Get your own from the bot.",
        (No::WrongPrice, Locale::Uz) => "Narx o‘zgargan. Botda yangi hisob oling.",
        (No::WrongPrice, Locale::Ru) => "Цена изменилась. Получите новый счёт в боте.",
        (No::WrongPrice, Locale::En) => "The price has changed. Get a new invoice from the bot.",
        (No::NotPayable, Locale::Uz) => "Bu hisob to‘langan yoki yopilgan.",
        (No::NotPayable, Locale::Ru) => "Этот счёт уже оплачен или закрыт.",
        (No::NotPayable, Locale::En) => "This invoice is paid or closed already.",
        (No::SlotTaken, Locale::Uz) => "Bu vaqt band bo‘ldi. Boshqa vaqtni tanlang.",
        (No::SlotTaken, Locale::Ru) => "Это время уже заняли. Выберите другое.",
        (No::SlotTaken, Locale::En) => "This time has just been taken. Choose another.",
        (No::SlotPast, Locale::Uz) => "Bu vaqt o‘tib ketdi. Boshqa vaqtni tanlang.",
        (No::SlotPast, Locale::Ru) => "Это время уже прошло. Выберите другое.",
        (No::SlotPast, Locale::En) => "This time has passed. Choose another.",
        (No::NeedsNewOrder, Locale::Uz) => "Hisobning vaqti tugadi. Botda yangi hisob oling.",
        (No::NeedsNewOrder, Locale::Ru) => "Время этого счёта истекло. Получите новый счёт в боте.",
        (No::NeedsNewOrder, Locale::En) => "The time of this invoice is over. Get a new one from the bot.",
    }
}

/// Why there is no yes although nothing is wrong with the order: we could not make sure of the slot in time.
pub(super) const fn not_now(language: Locale) -> &'static str {
    match language {
        Locale::Uz => "Hozir tekshirib bo‘lmadi, pul yechilmadi. Birozdan keyin qayta urining.",
        Locale::Ru => "Сейчас не удалось проверить, деньги не списаны. Повторите чуть позже.",
        Locale::En => "It could not be checked right now; nothing was charged. Try again in a moment.",
    }
}
