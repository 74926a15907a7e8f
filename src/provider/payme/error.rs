//! Every error Payme can get from us: its code, its text in three languages and what goes into `data`.

use serde_json::{Value, json};

use crate::payment::{self, State};

/// A text for the payer in Payme's three languages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Text {
    /// Russian.
    pub ru: &'static str,
    /// Uzbek.
    pub uz: &'static str,
    /// English.
    pub en: &'static str,
}

/// An error answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PaymeError {
    /// The HTTP method isn't POST.
    NotPost,
    /// The body isn't JSON.
    NotJson,
    /// The envelope or a field has the wrong shape; the phrase says which.
    BadRequest(&'static str),
    /// There is no such method.
    UnknownMethod(String),
    /// The key is nobody's.
    NotAuthorized,
    /// Our own fault. The reference leads to the log.
    Internal {
        /// Our id of the request.
        reference: String,
    },
    /// Not the order's amount, outside the wallet's bounds, or not positive.
    WrongAmount,
    /// No such transaction.
    UnknownTransaction,
    /// The money is spent.
    MoneySpent,
    /// The transaction's state doesn't allow this.
    WrongState,
    /// The book says something else about this transaction, so it can't be performed. The reference leads to the
    /// log, where both amounts are.
    BookedOtherwise {
        /// Our id of the request.
        reference: String,
    },
    /// The account is missing or there is none like it.
    UnknownAccount {
        /// The account's field.
        field: String,
    },
    /// The account can't be paid (any more).
    NotPayable {
        /// The account's field.
        field: String,
    },
    /// Another transaction of this one-time order is open.
    Busy {
        /// The account's field.
        field: String,
        /// The code to answer; sources differ, so it is a setting.
        code: i32,
    },
    /// SetFiscalData: no such receipt.
    UnknownReceipt,
    /// SetFiscalData: the parameters have the wrong shape.
    BadFiscalParams(&'static str),
}

impl PaymeError {
    /// The code. <https://developer.help.paycom.uz/metody-merchant-api/obschie-oshibki/>
    #[must_use]
    pub const fn code(&self) -> i32 {
        match self {
            Self::NotPost => -32_300,
            Self::NotJson => -32_700,
            Self::BadRequest(_) => -32_600,
            Self::UnknownMethod(_) => -32_601,
            Self::NotAuthorized => -32_504,
            Self::Internal { .. } => -32_400,
            Self::WrongAmount => -31_001,
            Self::UnknownTransaction => -31_003,
            Self::MoneySpent => -31_007,
            Self::WrongState | Self::BookedOtherwise { .. } => -31_008,
            Self::UnknownAccount { .. } => -31_050,
            Self::NotPayable { .. } => -31_051,
            Self::Busy { code, .. } => *code,
            Self::UnknownReceipt => -32_001,
            Self::BadFiscalParams(_) => -32_602,
        }
    }

    /// The text. Payme shows the account range to the payer, and support reads all of them.
    #[must_use]
    pub const fn text(&self) -> Text {
        match self {
            Self::NotPost => Text {
                ru: "Запрос должен быть отправлен методом POST",
                uz: "So‘rov POST usulida yuborilishi kerak",
                en: "The request must be sent by POST",
            },
            Self::NotJson => {
                Text {
                    ru: "Тело запроса не является JSON", uz: "So‘rov tanasi JSON emas", en: "The body is not JSON"
                }
            }
            Self::BadRequest(_) => Text {
                ru: "Неверная структура запроса",
                uz: "So‘rov tuzilishi noto‘g‘ri",
                en: "The request has the wrong structure",
            },
            Self::UnknownMethod(_) => {
                Text { ru: "Метод не найден", uz: "Bunday usul yo‘q", en: "There is no such method" }
            }
            Self::NotAuthorized => Text {
                ru: "Недостаточно прав для выполнения метода",
                uz: "Bu amal uchun ruxsat yo‘q",
                en: "Not authorized to call this method",
            },
            Self::Internal { .. } => Text {
                ru: "Внутренняя ошибка, повторите запрос позже",
                uz: "Ichki xatolik, so‘rovni keyinroq takrorlang",
                en: "Internal error, repeat the request later",
            },
            Self::WrongAmount => {
                Text { ru: "Неверная сумма", uz: "Summa noto‘g‘ri", en: "The amount is wrong" }
            }
            Self::UnknownTransaction => {
                Text {
                    ru: "Транзакция не найдена", uz: "Tranzaksiya topilmadi", en: "There is no such transaction"
                }
            }
            Self::MoneySpent => Text {
                ru: "Отмена невозможна: деньги уже потрачены",
                uz: "Bekor qilib bo‘lmaydi: pul sarflangan",
                en: "It can't be cancelled: the money is already spent",
            },
            Self::WrongState => Text {
                ru: "Состояние транзакции не позволяет выполнить операцию",
                uz: "Tranzaksiya holati bu amalga yo‘l qo‘ymaydi",
                en: "The transaction's state doesn't allow this operation",
            },
            Self::BookedOtherwise { .. } => Text {
                ru: "Операция невозможна, обратитесь в службу поддержки продавца",
                uz: "Amalni bajarib bo‘lmaydi, sotuvchining yordam xizmatiga murojaat qiling",
                en: "The operation is impossible, contact the merchant's support",
            },
            Self::UnknownAccount { .. } => Text {
                ru: "Счёт не найден, проверьте введённые данные",
                uz: "Hisob topilmadi, kiritilgan ma’lumotni tekshiring",
                en: "The account was not found, check what was entered",
            },
            Self::NotPayable { .. } => Text {
                ru: "Этот счёт уже оплачен или закрыт",
                uz: "Bu hisob allaqachon to‘langan yoki yopilgan",
                en: "This account is already paid or closed",
            },
            Self::Busy { .. } => Text {
                ru: "Этот заказ сейчас оплачивается другим платежом",
                uz: "Bu buyurtma hozir boshqa to‘lov bilan to‘lanmoqda",
                en: "This order is being paid by another payment",
            },
            Self::UnknownReceipt => {
                Text { ru: "Чек не найден", uz: "Chek topilmadi", en: "There is no such receipt" }
            }
            Self::BadFiscalParams(_) => Text {
                ru: "Неверные параметры чека",
                uz: "Chek parametrlari noto‘g‘ri",
                en: "The receipt's parameters are wrong",
            },
        }
    }

    /// What goes into `data`: the name of the wrong field, method or part; the reference of a fault.
    #[must_use]
    pub fn detail(&self) -> Value {
        match self {
            Self::NotPost
            | Self::NotJson
            | Self::NotAuthorized
            | Self::WrongAmount
            | Self::UnknownTransaction
            | Self::MoneySpent
            | Self::WrongState
            | Self::UnknownReceipt => Value::Null,
            Self::BadRequest(what) | Self::BadFiscalParams(what) => json!(what),
            Self::UnknownMethod(method) => json!(method),
            Self::Internal { reference } | Self::BookedOtherwise { reference } => json!(reference),
            Self::UnknownAccount { field } | Self::NotPayable { field } | Self::Busy { field, .. } => json!(field),
        }
    }

    /// The error object of the answer.
    #[must_use]
    pub fn to_object(&self) -> Value {
        json!({ "code": self.code(), "message": self.text(), "data": self.detail() })
    }

    /// A refusal of the payment room in Payme's words.
    #[must_use]
    pub fn from_refusal(refusal: &payment::Refusal, field: &str, busy_code: i32, reference: &str) -> Self {
        let field = || field.to_owned();
        match refusal {
            payment::Refusal::UnknownPayment => Self::UnknownTransaction,
            payment::Refusal::WrongState(
                State::Created | State::Performed { .. } | State::Cancelled { .. } | State::Refunded { .. },
            )
            | payment::Refusal::Differs { .. }
            | payment::Refusal::TooOld
            | payment::Refusal::FromTheFuture
            | payment::Refusal::Ledger(_) => Self::WrongState,
            payment::Refusal::UnknownTenant | payment::Refusal::UnknownOrder => Self::UnknownAccount { field: field() },
            payment::Refusal::WalletClosed(_)
            | payment::Refusal::OrderNotPayable { .. }
            | payment::Refusal::SlotGone { .. } => Self::NotPayable { field: field() },
            payment::Refusal::OrderBusy(_) | payment::Refusal::SlotHeld(_) => {
                Self::Busy { field: field(), code: busy_code }
            }
            payment::Refusal::WrongAmount { .. } => Self::WrongAmount,
            payment::Refusal::MoneySpent { .. } => Self::MoneySpent,
            payment::Refusal::BookedOtherwise { .. } => Self::BookedOtherwise { reference: reference.to_owned() },
        }
    }
}
