//! Every word of the console, in the three languages side by side: a word that lacks one doesn't compile. A table
//! of our own, since the libraries look words up by name at run time and show the name when one is missing.

use chrono::{DateTime, Utc};

use crate::hold::{EndedBy, Hold};
use crate::jobs::Job;
use crate::tenant::Locale;

macro_rules! words {
    ($($key:ident: $uz:literal | $ru:literal | $en:literal;)+) => {
        /// The words of one language.
        #[derive(Debug)]
        pub struct Words {
            $(pub $key: &'static str,)+
        }

        static UZ: Words = Words { $($key: $uz,)+ };
        static RU: Words = Words { $($key: $ru,)+ };
        static EN: Words = Words { $($key: $en,)+ };
    };
}

impl Words {
    /// The words of a language.
    pub fn of(language: Locale) -> &'static Self {
        match language {
            Locale::Uz => &UZ,
            Locale::Ru => &RU,
            Locale::En => &EN,
        }
    }
}

words! {
    skip: "Mazmunga oʻtish" | "К содержанию" | "Skip to content";
    language: "Til" | "Язык" | "Language";
    log_in: "Kirish" | "Войти" | "Log in";
    log_out: "Chiqish" | "Выйти" | "Log out";
    username: "Foydalanuvchi nomi" | "Имя пользователя" | "Username";
    password: "Parol" | "Пароль" | "Password";
    code: "Kod (agar soʻralsa)" | "Код (если включён)" | "Code (if you have one)";
    login_wrong: "Nom, parol yoki kod notoʻgʻri." | "Имя, пароль или код неверны." | "The name, the password or the code is wrong.";
    login_throttled: "Urinishlar juda koʻp. Keyinroq urinib koʻring; daqiqa:" | "Слишком много попыток. Попробуйте позже; минут:" | "Too many attempts. Try again later; minutes:";
    search: "Qidirish" | "Поиск" | "Search";
    search_hint: "Mijoz, ism, toʻlov raqami, buyurtma yoki telefon" | "Клиент, имя, номер платежа, заказ или телефон" | "Tenant, name, payment id, order or phone";
    amount: "Summa" | "Сумма" | "Amount";
    day: "Kun" | "День" | "Day";
    nothing_found: "Hech narsa topilmadi." | "Ничего не найдено." | "Nothing was found.";
    search_more: "Aniqroq yozing: koʻpi bilan 20 tasi koʻrsatiladi." | "Уточните запрос: показано не больше 20." | "Say more: at most 20 are shown.";
    tenants: "Mijozlar" | "Клиенты" | "Tenants";
    tenant: "Mijoz" | "Клиент" | "Tenant";
    name: "Nomi" | "Имя" | "Name";
    status: "Holati" | "Статус" | "Status";
    active: "faol" | "активен" | "active";
    suspended: "toʻxtatilgan" | "приостановлен" | "suspended";
    closed: "yopilgan" | "закрыт" | "closed";
    time_zone: "Vaqt mintaqasi" | "Часовой пояс" | "Time zone";
    balance: "Balans" | "Баланс" | "Balance";
    held: "Band qilingan" | "В холде" | "Held";
    available: "Mavjud" | "Доступно" | "Available";
    overdue_since: "Muddati oʻtgan, boshlab" | "Просрочено с" | "Overdue since";
    not_overdue: "Qarzi yoʻq" | "Долгов нет" | "Nothing is overdue";
    statement: "Koʻchirma" | "Выписка" | "Statement";
    statement_csv: "CSV" | "CSV" | "CSV";
    statement_print: "Chop etish uchun" | "Для печати" | "To print";
    older: "Avvalgilari" | "Более старые" | "Older";
    newer: "Keyingilari" | "Более новые" | "Newer";
    first_page: "Boshidan" | "С начала" | "From the start";
    all_kinds: "Barcha turlar" | "Все виды" | "All kinds";
    filter: "Saralash" | "Показать" | "Filter";
    row: "Qator" | "Строка" | "Row";
    kind: "Turi" | "Вид" | "Kind";
    reference: "Nima uchun" | "Основание" | "Reference";
    reason: "Sabab" | "Причина" | "Reason";
    note: "Izoh" | "Примечание" | "Note";
    who: "Kim" | "Кто" | "Who";
    when: "Qachon" | "Когда" | "When";
    balance_after: "Keyingi balans" | "Баланс после" | "Balance after";
    history: "Balans vaqt boʻyicha" | "Баланс по времени" | "Balance over time";
    payments: "Toʻlovlar" | "Платежи" | "Payments";
    payment: "Toʻlov" | "Платёж" | "Payment";
    provider: "Provayder" | "Провайдер" | "Provider";
    external_id: "Provayder raqami" | "Номер у провайдера" | "Provider's id";
    state_created: "kutilmoqda" | "ожидается" | "promised";
    state_performed: "toʻlangan" | "проведён" | "performed";
    state_cancelled: "bekor qilingan" | "отменён" | "cancelled";
    state_refunded: "qaytarilgan" | "возвращён" | "given back";
    test_mode: "sinov" | "тест" | "test";
    calls: "Provayder soʻrovlari" | "Запросы провайдера" | "Provider's calls";
    question: "Soʻrov" | "Запрос" | "Question";
    answer: "Javobimiz" | "Наш ответ" | "Our answer";
    dues: "Abonent toʻlovlari" | "Абонентские платежи" | "Dues";
    plan: "Tarif" | "Тариф" | "Plan";
    month: "Oy" | "Месяц" | "Month";
    due_paid: "toʻlangan" | "оплачено" | "paid";
    due_overdue: "muddati oʻtgan" | "просрочено" | "overdue";
    due_paid_late: "kech toʻlangan" | "оплачено с опозданием" | "paid late";
    requests: "Soʻrovlar" | "Заявки" | "Requests";
    request: "Soʻrov" | "Заявка" | "Request";
    requested_by: "Kim soʻragan" | "Кто просит" | "Asked by";
    decided_by: "Kim qaror qilgan" | "Кто решил" | "Decided by";
    expires: "Muddati" | "Истекает" | "Ends";
    status_waiting: "ikkinchi odam kutilmoqda" | "ждёт второго человека" | "waits for a second person";
    status_posted: "oʻtkazildi" | "проведено" | "posted";
    status_rejected: "rad etildi" | "отклонено" | "rejected";
    status_withdrawn: "qaytarib olindi" | "отозвано" | "withdrawn";
    status_expired: "muddati tugadi" | "срок истёк" | "expired";
    approve: "Tasdiqlash" | "Одобрить" | "Approve";
    reject: "Rad etish" | "Отклонить" | "Reject";
    withdraw: "Qaytarib olish" | "Отозвать" | "Withdraw";
    own_request: "Oʻz soʻrovingiz: boshqa odam hal qiladi." | "Ваша заявка: решает другой." | "Your own request: somebody else decides.";
    no_requests: "Kutayotgan soʻrov yoʻq." | "Нет ожидающих заявок." | "No request is waiting.";
    undecided_only: "Faqat kutayotganlar" | "Только ожидающие" | "Only waiting ones";
    all_requests: "Hammasi" | "Все" | "All";
    refund: "Qaytarish" | "Возврат" | "Refund";
    refund_this: "Shu qatorni qaytarish" | "Вернуть эту строку" | "Give this row back";
    left_to_refund: "Qaytarish mumkin" | "Можно вернуть" | "Left to give back";
    adjustment: "Tuzatish" | "Корректировка" | "Adjustment";
    adjustment_hint: "Musbat — qoʻshiladi, manfiy — ayriladi" | "Положительная — зачислить, отрицательная — списать" | "Positive adds, negative takes";
    see_result: "Natijani koʻrish" | "Посмотреть результат" | "See the result";
    nothing_posted_yet: "Hali hech narsa oʻtkazilmadi. Tekshiring va tasdiqlang." | "Ещё ничего не проведено. Проверьте и подтвердите." | "Nothing is posted yet. Check it and confirm.";
    before: "Oldin" | "До" | "Before";
    after: "Keyin" | "После" | "After";
    dues_paid: "Toʻlanadigan qarzlar soni" | "Будет оплачено долгов" | "Overdue dues it pays";
    needs_approval: "Bu limitdan yuqori: ikkinchi odam tasdiqlaydi. Limitingiz:" | "Это выше лимита: одобрит второй человек. Ваш лимит:" | "This is above your limit: a second person approves. Your limit:";
    posts_at_once: "Darhol oʻtkaziladi. Kunlik limitingiz:" | "Будет проведено сразу. Ваш дневной лимит:" | "It is posted at once. Your daily limit:";
    post_it: "Oʻtkazish" | "Провести" | "Post it";
    ask_for_it: "Soʻrov yuborish" | "Отправить заявку" | "Send the request";
    back: "Ortga" | "Назад" | "Back";
    story: "Bu qator nima?" | "Что это за строка?" | "What is this row?";
    rule: "Qoida" | "Правило" | "Rule";
    cause: "Sababi" | "Причина" | "What caused it";
    effects: "Natijasi" | "Последствия" | "What it caused";
    given_back_by: "Qaytargan qatorlar" | "Возвращено строками" | "Given back by";
    gives_back: "Qaytaradi" | "Возвращает" | "Gives back";
    events: "Xabarlar" | "События" | "Events";
    delivered: "yetkazildi" | "доставлено" | "delivered";
    of: "dan" | "из" | "of";
    dead: "yetib bormadi" | "не доставлено" | "given up";
    no_endpoints: "manzil yoʻq" | "нет адресов" | "no endpoint";
    rule_top_up: "P1: provayder toʻlovni oʻtkazdi, pul bir marta yozildi." | "P1: провайдер провёл платёж, деньги зачислены один раз." | "P1: the provider performed the payment; the money came in once.";
    rule_reversal: "P3: provayder toʻlovni qaytardi; pul yetarli edi." | "P3: провайдер вернул платёж; денег хватило." | "P3: the provider took the payment back; there was enough money.";
    rule_fee: "F2: oylik toʻlov, mavjud pul yetarli edi; bir oy bir marta." | "F2: месячная плата, денег хватило; месяц один раз." | "F2: the month's fee; enough was available; each month once.";
    rule_refund: "S1: bu qator debetni qaytaradi; jami asl summadan oshmaydi." | "S1: строка возвращает списание; в сумме не больше исходного." | "S1: this row gives a debit back; together never more than the original.";
    rule_adjustment: "S1: odam sabab bilan tuzatdi." | "S1: человек исправил с указанием причины." | "S1: a person corrected the wallet, with a reason.";
    rule_grant: "H12: mijozga bepul berilgan mablagʻ." | "H12: начислено клиенту без оплаты." | "H12: given to the tenant without payment.";
    rule_expiry: "H12: choʻntak muddati tugadi, qolgani hisobdan chiqdi." | "H12: срок кармана истёк, остаток списан." | "H12: the pocket's time was over and what was left went.";
    rule_hold_charge: "H5: ish band qilingan puldan bir marta toʻlandi." | "H5: работа оплачена из холда один раз." | "H5: the work of a hold was paid, once.";
    rule_booking: "B4: toʻlov shu vaqtni oldi; pul bir marta sarflandi." | "B4: платёж купил это время; деньги потрачены один раз." | "B4: the payment bought its slot; the money was spent once.";
    rule_custom: "L3: mahsulot oʻzi yozgan qator." | "L3: строка самого продукта." | "L3: a row of the product's own.";
    topup_returns: "Toʻldirish faqat provayder orqali qaytadi (Payme kabinetida bekor qilinadi). Hamyon pul yetarli boʻlsa rozi boʻladi." | "Пополнение возвращается только через провайдера (отмена в кабинете Payme). Hamyon согласится, если денег хватает." | "A top-up goes back only through its provider (cancel it in Payme's cabinet). Hamyon agrees when there is enough money.";
    topup_enough: "Hozir yetarli: bekor qilish oʻtadi." | "Сейчас хватает: отмена пройдёт." | "There is enough now: the cancel would go through.";
    topup_short: "Hozir yetarli emas: bekor qilish -31007 bilan rad etiladi. Yetmaydi:" | "Сейчас не хватает: отмена получит -31007. Не хватает:" | "There isn't enough now: the cancel would be refused with -31007. Missing:";
    stars_return: "Yulduzlar Telegram orqali qaytadi: ular chetga olinadi, Hamyon Telegramdan qaytarishni soʻraydi; tasdiqlanganda toʻlovchida boʻladi." | "Звёзды возвращаются через Telegram: они откладываются, Hamyon просит Telegram о возврате; когда он подтверждён, они у плательщика." | "Stars go back through Telegram: they are set aside, Hamyon asks Telegram for the refund, and when it is confirmed the payer has them.";
    stars_short: "Hozir yetarli emas. Yetmaydi:" | "Сейчас не хватает. Не хватает:" | "There isn't enough now. Missing:";
    stars_on_their_way: "Toʻlov toʻlovchiga qaytmoqda." | "Платёж уже возвращается плательщику." | "The payment is on its way back to its payer.";
    stars_bought_slot: "Toʻlov vaqt sotib olgan: band qilishni bekor qiling, pul u bilan qaytadi." | "Платёж купил слот: отмените бронь, деньги вернутся вместе с ней." | "The payment bought a slot: cancel the booking, and the money goes back with it.";
    stars_stay_spent: "Toʻlov olgan band qilish pulsiz bekor qilingan: avval uning qatorini hamyonga qaytaring." | "Бронь, которую купил платёж, отменена без возврата: сначала верните её строку в кошелёк." | "The booking that the payment bought was cancelled without giving the money back: refund its row into the wallet first.";
    stars_elsewhere: "Odam bu pulni boshqa hamyonga oʻtkazgan." | "Человек перевёл эти деньги в другой кошелёк." | "A person has put this money into another wallet.";
    slots: "Vaqtlar" | "Слоты" | "Slots";
    slot: "Vaqt" | "Слот" | "Slot";
    resource: "Resurs" | "Ресурс" | "Resource";
    slot_starts: "Boshlanishi" | "Начало" | "Begins";
    slot_ends: "Tugashi" | "Конец" | "Ends";
    slot_free: "boʻsh" | "свободен" | "free";
    slot_held: "ushlab turilibdi, gacha" | "удержан до" | "held until";
    slot_booked: "band qilingan" | "забронирован" | "booked";
    order: "Buyurtma" | "Заказ" | "Order";
    order_busy: "toʻlanmoqda" | "оплачивается" | "being paid";
    order_paid: "toʻlangan" | "оплачен" | "paid";
    order_refunded: "qaytarilgan" | "возвращён" | "refunded";
    order_story: "Nima boʻldi" | "История" | "What happened";
    payer: "Toʻlovchi" | "Плательщик" | "Payer";
    moment_ordered: "buyurtma berildi" | "заказ создан" | "ordered";
    moment_closed: "buyurtma yopildi" | "заказ закрыт" | "closed";
    moment_yes: "toʻlovga ruxsat berildi" | "оплата разрешена" | "told yes";
    moment_no: "toʻlov rad etildi" | "оплата отклонена" | "told no";
    moment_held: "vaqt ushlab turildi" | "слот удержан" | "slot held";
    moment_hold_ended: "ushlab turish tugadi" | "удержание снято" | "hold ended";
    moment_promised: "toʻlov vaʼda qilindi" | "платёж создан" | "payment promised";
    moment_paid: "toʻlov keldi" | "платёж пришёл" | "payment came";
    moment_payment_cancelled: "toʻlov bekor qilindi" | "платёж отменён" | "payment cancelled";
    moment_booked: "band qilindi" | "забронировано" | "booked";
    moment_cancelled: "band qilish bekor qilindi" | "бронь отменена" | "booking cancelled";
    moment_refund_asked: "qaytarish soʻraldi" | "возврат запрошен" | "refund asked for";
    moment_refund_checking: "qaytarish tekshirilmoqda" | "возврат проверяется" | "refund is being checked";
    moment_refunded: "pul qaytdi" | "деньги вернулись" | "money has gone back";
    moment_refund_failed: "qaytarib boʻlmadi" | "возврат не удался" | "refund failed";
    moment_case_opened: "odam koʻrishi kerak" | "нужен человек" | "a person has to look";
    moment_case_resolved: "odam hal qildi" | "человек решил" | "a person has decided";
    refund_tasks: "Toʻlovchiga qaytarish" | "Возвраты плательщикам" | "Refunds to payers";
    refund_waiting: "navbatda" | "в очереди" | "waiting";
    refund_checking: "tekshirilmoqda" | "проверяется" | "being checked";
    refund_refunded: "qaytarildi" | "возвращено" | "refunded";
    refund_failed: "boʻlmadi" | "не удалось" | "failed";
    cases: "Odam kerak" | "Нужен человек" | "Needs a person";
    case_mismatch: "toʻlov buyurtmaga mos emas" | "платёж не подходит к заказу" | "a payment doesn't fit its order";
    case_foreign_currency: "boshqa valyutadagi toʻlov" | "платёж в чужой валюте" | "a payment in another currency";
    case_refund_failed: "qaytarib boʻlmadi" | "возврат не удался" | "a refund failed";
    case_lost_payment: "xabarsiz kelgan toʻlov" | "платёж без уведомления" | "a payment we weren't told of";
    case_unasked_refund: "soʻralmagan qaytarish" | "возврат без запроса" | "a refund nobody asked for";
    case_negative_balance: "bot balansi manfiy" | "баланс бота отрицательный" | "the bot's balance is negative";
    case_unread_update: "oʻqib boʻlmagan xabar" | "непрочитанное уведомление" | "an update that can't be read";
    case_unread_line: "oʻqib boʻlmagan qator" | "непрочитанная строка" | "a line that can't be read";
    case_refund: "Toʻlovchiga qaytarish" | "Вернуть плательщику" | "Give it back";
    case_keep: "Qoldirish" | "Оставить" | "Keep it";
    case_keep_for: "Qaysi mijozga qoldiriladi (boʻsh — oʻzida)" | "Кому оставить (пусто — где лежит)" | "Keep it for (empty: where it is)";
    case_close: "Yopish" | "Закрыть" | "Close";
    case_resolved_by: "Hal qildi" | "Решил(а)" | "Resolved by";
    case_no_money: "Bu ishda kutayotgan pul yoʻq: faqat yopish mumkin." | "По этому делу нет ожидающих денег: его можно только закрыть." | "No money waits for this case: it can only be closed.";
    case_money_waits: "Bu ishning puli kutmoqda: qaytaring yoki qoldiring." | "Деньги по этому делу ждут: верните или оставьте их." | "The money of this case waits: give it back or keep it.";
    fee_runs: "Oylik yechimlar" | "Списания" | "Fee runs";
    expected: "Kutilgan" | "Ожидалось" | "Expected";
    charged: "Yechilgan" | "Списано" | "Charged";
    overdue: "Muddati oʻtgan" | "Просрочено" | "Overdue";
    open: "Ochiq" | "Открыто" | "Open";
    difference: "Farq" | "Разница" | "Difference";
    started: "Boshlangan" | "Начат" | "Started";
    webhooks: "Xabarnomalar" | "Вебхуки" | "Webhooks";
    endpoint: "Manzil" | "Адрес" | "Endpoint";
    attempts: "Urinishlar" | "Попыток" | "Attempts";
    next_attempt: "Keyingi urinish" | "Следующая попытка" | "Next attempt";
    last_problem: "Oxirgi muammo" | "Последняя проблема" | "Last problem";
    send_again: "Yana yuborish" | "Отправить снова" | "Send again";
    waiting: "kutmoqda" | "ждёт" | "waiting";
    all: "Hammasi" | "Все" | "All";
    health: "Ishlar va holat" | "Задания и состояние" | "Jobs and health";
    jobs: "Ishlar" | "Задания" | "Jobs";
    oldest_event: "Eng eski kutayotgan xabar" | "Старейшее ожидающее событие" | "Oldest event that waits";
    database: "Maʼlumotlar bazasi" | "База данных" | "Database";
    refused_calls: "Rad etilgan soʻrovlar" | "Отклонённые запросы" | "Refused calls";
    overview: "Oy hisoboti" | "Обзор месяца" | "Month";
    money_in: "Kirgan pul" | "Поступило" | "Money in";
    rows: "Qatorlar" | "Строк" | "Rows";
    unpaid_now: "Hozir toʻlanmagan" | "Сейчас не оплачено" | "Unpaid now";
    audit: "Audit" | "Журнал" | "Audit";
    action: "Harakat" | "Действие" | "Action";
    outcome: "Natija" | "Итог" | "Outcome";
    refused: "rad etilgan" | "отказано" | "refused";
    allowed: "ruxsat" | "разрешено" | "allowed";
    address: "Manzil" | "Адрес" | "Address";
    role: "Rol" | "Роль" | "Role";
    words: "Nima boʻldi" | "Что произошло" | "What happened";
    none: "Yoʻq" | "Нет" | "None";
    error_title: "Bunday boʻlmadi" | "Не получилось" | "That didn't work";
    error_reference: "Maʼlumot raqami" | "Номер обращения" | "Reference";
    error_forbidden: "Buning uchun boshqa rol kerak:" | "Для этого нужна роль:" | "This needs the role:";
    error_form: "Shakl eskirgan yoki boshqa saytdan keldi. Sahifani yangilab, qayta urining." | "Форма устарела или пришла с другого сайта. Обновите страницу и попробуйте снова." | "The form is too old or came from another site. Reload the page and try again.";
    error_not_found: "Bunday narsa yoʻq." | "Такого нет." | "There is no such thing.";
    error_internal: "Bizda nimadir buzildi. Raqamni xizmat egasiga ayting." | "У нас что-то сломалось. Сообщите номер тому, кто обслуживает систему." | "Something broke on our side. Give the reference to whoever runs this service.";
    reason_goodwill: "xayrixohlik" | "жест доброй воли" | "goodwill";
    reason_correction: "xatoni tuzatish" | "исправление ошибки" | "correction";
    reason_duplicate_charge: "ikki marta yechilgan" | "двойное списание" | "charged twice";
    reason_missing_payment: "kelmay qolgan toʻlov" | "не дошедший платёж" | "missing payment";
    reason_migration: "eski tizimdan" | "перенос из другой системы" | "brought from another system";
    reason_fraud: "firibgarlik" | "мошенничество" | "fraud";
    reason_other: "boshqa (izohda)" | "другое (в примечании)" | "other (see the note)";
    kind_top_up: "toʻldirish" | "пополнение" | "top-up";
    kind_top_up_reversal: "toʻldirishning qaytishi" | "возврат пополнения" | "top-up reversal";
    kind_subscription_fee: "abonent toʻlovi" | "абонплата" | "subscription fee";
    kind_refund: "qaytarish" | "возврат" | "refund";
    kind_grant: "sovgʻa mablagʻ" | "начисление" | "grant";
    kind_expiry: "muddati tugashi" | "сгорание" | "expiry";
    kind_hold_charge: "ish uchun toʻlov" | "оплата работы" | "hold charge";
    kind_adjustment: "tuzatish" | "корректировка" | "adjustment";
    kind_booking: "band qilish" | "бронь" | "booking";
    opening_balance: "Boshlangʻich balans" | "Входящий остаток" | "Opening balance";
    closing_balance: "Yakuniy balans" | "Исходящий остаток" | "Closing balance";
    yes: "Ha" | "Да" | "Yes";
    no: "Yoʻq" | "Нет" | "No";
    pocket: "Choʻntak" | "Карман" | "Pocket";
    pockets: "Choʻntaklar" | "Карманы" | "Pockets";
    pocket_open: "ochiq" | "открыт" | "open";
    spent_in_order: "Shu tartibda sarflanadi." | "Тратятся в этом порядке." | "They are spent in this order.";
    priority: "Ustuvorligi" | "Приоритет" | "Priority";
    hold: "Band" | "Холд" | "Hold";
    holds: "Bandlar" | "Холды" | "Holds";
    holds_unended: "Tugamagan bandlar" | "Незавершённые холды" | "Holds that haven't ended";
    hold_tiers: "Soʻnggi 30 kun, darajalar boʻyicha" | "Последние 30 дней по уровням" | "The last 30 days, by tier";
    hold_quantiles: "p50, p90, p99: toʻlangan bandlarning yarmidan, 90 va 99 foizidan koʻpi bilan shuncha yechilgan. Undan biroz yuqori daraja kamdan-kam yetmay qoladi." | "p50, p90, p99: с половины, с 90 и с 99 процентов оплаченных холдов списано не больше этого. Уровня чуть выше редко не хватает." | "p50, p90, p99: what half, 90 and 99 per cent of the settled holds were charged at the most. A tier a little above it is rarely too small.";
    queue: "Navbat" | "Очередь" | "Queue";
    queue_priority: "ustuvor" | "приоритетная" | "priority";
    queue_plain: "oddiy" | "обычная" | "plain";
    tier: "Daraja" | "Уровень" | "Tier";
    by_amount: "summa boʻyicha" | "по сумме" | "by amount";
    placed: "Qoʻyilgan" | "Создан" | "Placed";
    ended: "Tugagan" | "Завершён" | "Ended";
    ends_or_ended: "Tugashi" | "Окончание" | "Ends or ended";
    ended_by: "Kim tugatgan" | "Кто завершил" | "Ended by";
    settled: "Toʻlangan" | "Оплачено" | "Settled";
    released: "Boʻshatilgan" | "Снято" | "Released";
    reconciled: "Solishtiruvda tugagan" | "Завершено сверкой" | "Reconciled";
    over_held: "Banddan oshgan" | "Сверх холда" | "Over what was held";
    hold_placed: "ishchi kutilmoqda" | "ждёт исполнителя" | "waits for a worker";
    hold_started: "ishlanmoqda" | "в работе" | "at work";
    hold_settled: "toʻlangan" | "оплачен" | "settled";
    hold_released: "boʻshatilgan" | "снят" | "released";
    by_worker: "ishchi" | "исполнитель" | "worker";
    by_reconciler: "solishtiruv" | "сверка" | "reconciler";
    by_canceller: "bekor qilgan" | "отменивший" | "canceller";
    by_successor: "yangi ish" | "новая задача" | "successor";
    hold_waits: "Hali hech bir ishchi boshlamagan." | "Ни один исполнитель ещё не начал." | "No worker has begun yet.";
    hold_works: "Ishchi ishlamoqda." | "Исполнитель работает." | "A worker is at it.";
    hold_stopping: "Ishchidan toʻxtash soʻralgan; u buni keyingi xabarida biladi." | "Исполнителя попросили остановиться; он узнает об этом при следующем сигнале." | "Its worker is asked to stop, and hears so with the next sign of life.";
    hold_time_over: "H9: muddati tugadi: endi pul ushlamaydi, solishtiruv uni tez orada yakunlaydi." | "H9: срок истёк: денег он больше не держит, сверка скоро его завершит." | "H9: its time is over: it keeps no money any more, and the reconciler ends it soon.";
    hold_settled_as_held: "H5: ishchi ishni tugatdi; band qilingan summa yechildi." | "H5: исполнитель закончил работу; списана сумма холда." | "H5: the worker finished, and what was held was charged.";
    hold_settled_amount: "H5: ishchi ishni tugatdi; oʻzi aytgan summa yechildi." | "H5: исполнитель закончил работу; списана названная им сумма." | "H5: the worker finished, and the amount that it named was charged.";
    hold_settled_by_usage: "H5: ishchi ishni tugatdi; chaqiruvlar sarfi yechildi." | "H5: исполнитель закончил работу; списан расход вызовов." | "H5: the worker finished, and what its calls used was charged.";
    hold_failed: "H6: ish chiqmadi va hech narsa sarflamadi, shuning uchun hech narsa yechilmadi." | "H6: работа не удалась и ничего не израсходовала, поэтому ничего не списано." | "H6: the work failed and had used nothing, so nothing was charged.";
    hold_failed_used: "H10: ish chiqmadi; chaqiruvlar sarfi yechildi." | "H10: работа не удалась; списан расход вызовов." | "H10: the work failed, and what its calls had used was charged.";
    hold_cancelled: "H6: ish boshlanmasidan bekor qilindi; hech narsa yechilmadi." | "H6: отменён до начала работы; ничего не списано." | "H6: it was cancelled before the work began, and nothing was charged.";
    hold_cancelled_used: "H10: bekor qilindi; chaqiruvlar sarfi yechildi." | "H10: отменён; списан расход вызовов." | "H10: it was cancelled, and what its calls had used was charged.";
    hold_replaced: "H11: oʻrnini shu sessiyaning yangi ishi oldi; hech narsa sarflanmagan edi, hech narsa yechilmadi." | "H11: его сменила новая задача той же сессии; ничего не было израсходовано и ничего не списано." | "H11: a new job of the same session took its place; it had used nothing, and nothing was charged.";
    hold_replaced_used: "H11: oʻrnini shu sessiyaning yangi ishi oldi; chaqiruvlar sarfi yechildi." | "H11: его сменила новая задача той же сессии; списан расход вызовов." | "H11: a new job of the same session took its place, and what its calls had used was charged.";
    hold_reconciled_used: "H9: muddati tugadi, hech kim kelmadi; solishtiruv chaqiruvlar sarfini yechdi." | "H9: срок истёк, никто не пришёл; сверка списала расход вызовов." | "H9: its time was over and nobody came back; the reconciler charged what its calls had used.";
    hold_usage_lost: "H9: ish boshlangan edi, sarfi esa yoʻqolgan; solishtiruv band qilingan summani yechdi. Ish bajarilganini tekshiring; bajarilmagan boʻlsa, qaytaring." | "H9: работа была начата, а её расход потерян; сверка списала сумму холда. Проверьте, сделана ли работа, и если нет, верните." | "H9: the work had begun and its usage was lost; the reconciler charged what was held. Look whether the work was done, and give it back if not.";
    hold_never_started: "H9: muddati tugadi, ish boshlanmagan edi; solishtiruv uni boʻshatdi, hech narsa yechilmadi." | "H9: срок истёк, работа не начиналась; сверка сняла холд, ничего не списано." | "H9: its time was over and the work had never begun; the reconciler released it, and nothing was charged.";
    hold_reconciled_free: "H9: muddati tugadi, hech narsa sarflanmagan edi; hech narsa yechilmadi." | "H9: срок истёк, ничего не было израсходовано; ничего не списано." | "H9: its time was over and it had used nothing; nothing was charged.";
    hold_asked: "Nima soʻralgan" | "Что запрошено" | "What was asked";
    hold_partial: "Kamrogʻi ham boʻladi" | "Годится и меньше" | "Less will do";
    session: "Sessiya" | "Сессия" | "Session";
    dedupe_key: "Takror kaliti" | "Ключ повтора" | "Dedupe key";
    fingerprint: "Barmoq izi" | "Отпечаток" | "Fingerprint";
    price_book: "Narxlar kitobi" | "Прейскурант" | "Price book";
    placed_by: "Kim qoʻygan" | "Кто создал" | "Placed by";
    cost_cap: "Eng koʻp narxi" | "Предел стоимости" | "Cost cap";
    used: "Sarflangan" | "Израсходовано" | "Used";
    times: "Vaqtlar" | "Времена" | "Times";
    told_waiting: "Kutayotgani aytilgan" | "Сообщено, что ждёт" | "Told that it waits";
    lease: "Ishchi xabari amal qiladi" | "Сигнал исполнителя действует до" | "Sign of life counts until";
    cancel_asked: "Toʻxtash soʻralgan" | "Попросили остановиться" | "Asked to stop";
    usage: "Sarf jurnali" | "Журнал расхода" | "Usage log";
    calls_newest: "Eng yangi 200 tasi koʻrsatilgan; jami:" | "Показаны новейшие 200; всего:" | "The newest 200 are shown; in all:";
    call: "Chaqiruv" | "Вызов" | "Call";
    model: "Model" | "Модель" | "Model";
    tokens_input: "Oʻqilgan tokenlar" | "Прочитано токенов" | "Tokens read";
    tokens_output: "Yozilgan tokenlar" | "Написано токенов" | "Tokens written";
    tokens_cached: "Keshdan tokenlar" | "Токенов из кеша" | "Tokens from cache";
    cost_micro: "Narxi, mikrodollar" | "Стоимость, микродолларов" | "Cost, micro-dollars";
    paid_by_rows: "Toʻlagan qatorlar" | "Оплачено строками" | "Paid by rows";
    from_day: "Boshlab" | "С" | "From";
    to_day: "Gacha" | "По" | "To";
    error_kind: "Bunday tur boʻlmaydi (a-z, 0-9, _):" | "Такого вида не бывает (a-z, 0-9, _):" | "There can be no such kind (a-z, 0-9, _):";
    error_day: "Bu kun emas:" | "Это не день:" | "This is no day:";
    error_days_reversed: "Birinchi kun oxirgisidan keyin:" | "Первый день позже последнего:" | "The first day is after the last one:";
    error_statement_long: "10 000 qatordan koʻp: kunlarni kamaytiring yoki hamyon export dan foydalaning." | "Больше 10 000 строк: возьмите меньше дней или hamyon export." | "More than 10,000 rows: take fewer days, or hamyon export.";
    error_fields: "Shaklda maydon yetishmaydi yoki undagi yozuv notoʻgʻri." | "В форме не хватает поля, или в нём не то." | "The form lacks a field, or one of them can't be read.";
    error_method: "Bu sahifaga faqat undagi tugma orqali kiriladi." | "Сюда ведёт только кнопка на странице." | "Only a button of a page leads here.";
    error_address: "Manzilda oʻqib boʻlmaydigan narsa bor." | "В адресе есть то, что нельзя прочитать." | "The address has something in it that can't be read.";
    error_late: "Javob kechikmoqda. Birozdan keyin qayta urining." | "Ответ задерживается. Попробуйте чуть позже." | "The answer takes too long. Try again in a moment.";
    rule_reason: "1–500 belgi, boshqaruv belgilarisiz" | "от 1 до 500 знаков без управляющих" | "1 to 500 characters without control characters";
    rule_tenant: "Bunday mijoz raqami boʻlmaydi." | "Такого номера клиента не бывает." | "There can be no such tenant id.";
    rule_amount: "summa emas yoki valyutada bunday kasr yoʻq:" | "не сумма, или у валюты нет таких долей:" | "no amount, or the currency has no such digits:";
    role_viewer: "kuzatuvchi" | "наблюдатель" | "viewer";
    role_agent: "agent" | "агент" | "agent";
    role_approver: "tasdiqlovchi" | "утверждающий" | "approver";
    role_admin: "administrator" | "администратор" | "admin";
    case_tenant_with_keep: "Mijoz faqat «Qoldirish» bilan yoziladi." | "Клиент указывается только вместе с «Оставить»." | "A tenant goes with \"Keep it\" only.";
    resolution_refund: "toʻlovchiga qaytarildi" | "возвращено плательщику" | "given back";
    resolution_keep: "qoldirildi" | "оставлено" | "kept";
    resolution_closed: "yopildi" | "закрыто" | "closed";
    stars_in_case: "Toʻlov puli chetga olingan, uning ishi ochiq: avval uni hal qiling («Odam kerak»)." | "Деньги платежа отложены, и его дело открыто: сначала решите его («Нужен человек»)." | "The money of the payment is set aside and its case is open: resolve that first (\"Needs a person\").";
    topup_bought_slot: "Toʻlov vaqt sotib olgan va band qilish turibdi: bekor qilish -31007 bilan rad etiladi. Avval band qilishni bekor qilib, pulni hamyonga qaytaring." | "Платёж купил слот, и бронь стоит: отмена получит -31007. Сначала отмените бронь с возвратом в кошелёк." | "The payment bought a slot and its booking stands: the cancel would be refused with -31007. Cancel the booking into the wallet first.";
    topup_stays_spent: "Toʻlov olgan band qilish pulsiz bekor qilingan: bekor qilish -31007 bilan rad etiladi. Avval uning qatorini hamyonga qaytaring." | "Бронь, которую купил платёж, отменена без возврата: отмена получит -31007. Сначала верните её строку в кошелёк." | "The booking that the payment bought was cancelled without giving the money back: the cancel would be refused with -31007. Refund the booking's row into the wallet first.";
    rule_reversal_asked: "B5: toʻlov bizning soʻrovimiz bilan toʻlovchiga qaytdi; puli chetga olingan edi." | "B5: платёж вернулся плательщику по нашей просьбе; деньги были отложены." | "B5: the payment went back to its payer because we asked; its money had been set aside.";
    rule_reversal_unasked: "B5: provayder toʻlovni bizning soʻrovimizsiz qaytarib oldi. U ketgan, shuning uchun pul yetmasa ham yozildi; balans manfiy boʻlishi mumkin." | "B5: провайдер забрал платёж без нашей просьбы. Денег уже нет, поэтому строка записана, даже если их не хватало; баланс мог стать отрицательным." | "B5: the provider took the payment back without our asking. It is gone, so it is booked whether or not there was enough; the balance may have become negative.";
    due_with_next_credit: "Endi yetarli: keyingi tushum bilan toʻlanadi." | "Теперь хватает: будет оплачено следующим поступлением." | "There is enough now: the next credit pays it.";
    given_back_in_all: "Jami qaytarilgan" | "Всего возвращено" | "Given back in all";
    limit_used: "Oxirgi 24 soatda shu hamyonda ishlatilgan:" | "За последние 24 часа в этом кошельке использовано:" | "Used in this wallet in the last 24 hours:";
    after_approval: "Tasdiqlansa, balans" | "Баланс после одобрения" | "Balance after approval";
    approval_refused: "Hozir tasdiqlash rad etiladi:" | "Сейчас одобрение будет отклонено:" | "Approving it now would be refused:";
    pocket_set_aside: "chetga olingan: sarflanmaydi" | "отложено: не тратится" | "set aside: not spent";
    curve_first: "boshida" | "в начале" | "first";
    curve_lowest: "eng kam" | "наименьший" | "lowest";
    curve_highest: "eng koʻp" | "наибольший" | "highest";
    curve_last: "oxirida" | "в конце" | "last";
    account: "Hisob" | "Счёт" | "Account";
    providers_reason: "Provayder sababi (kodi)" | "Причина провайдера (код)" | "Provider's reason (code)";
    payment_promised: "Provayder toʻlovni vaʼda qilgan, lekin hali oʻtkazmagan: pul bizda yoʻq." | "Провайдер создал платёж, но ещё не провёл его: денег у нас нет." | "The provider has promised the payment and not performed it yet: the money isn't here.";
    payment_cancelled: "Provayder toʻlovni oʻtkazmay bekor qilgan: pul kelmagan, u toʻlovchida." | "Провайдер отменил платёж, не проведя его: деньги к нам не приходили, они у плательщика." | "The provider cancelled the payment without performing it: the money never came, the payer has it.";
    payment_test: "Sinov kaliti bilan qilingan toʻlov: u hech qachon pulga aylanmaydi." | "Платёж с тестовым ключом: деньгами он не становится." | "A payment made with the test key: it never becomes money.";
    search_lacks_day: "Summa kun bilan birga qidiriladi: kunni ham koʻrsating." | "Сумма ищется вместе с днём: укажите и день." | "An amount is looked for together with a day: give the day, too.";
    search_lacks_amount: "Kun summa bilan birga qidiriladi: summani ham koʻrsating." | "День ищется вместе с суммой: укажите и сумму." | "A day is looked for together with an amount: give the amount, too.";
    asked_check: "Toʻlash mumkinmi?" | "Можно ли платить?" | "May it be paid?";
    asked_create: "Toʻlov yaratilsin." | "Создать платёж." | "Create the payment.";
    asked_perform: "Toʻlov oʻtkazilsin." | "Провести платёж." | "Perform the payment.";
    asked_cancel: "Toʻlov bekor qilinsin." | "Отменить платёж." | "Cancel the payment.";
    asked_state: "Toʻlov holati qanday?" | "Каково состояние платежа?" | "How does the payment stand?";
    asked_receipt: "Soliq cheki." | "Налоговый чек." | "The tax receipt.";
    asked_other: "Boshqa soʻrov." | "Другой запрос." | "Another question.";
    answered_yes: "Javobimiz: ha" | "Наш ответ: да" | "We said yes";
    answered_no: "Rad etdik" | "Мы отказали" | "We refused";
    action_log_in: "kirish" | "вход" | "login";
    action_log_out: "chiqish" | "выход" | "logout";
    action_request_approve: "soʻrov tasdigʻi" | "одобрение заявки" | "approval of a request";
    action_request_reject: "soʻrov rad etilishi" | "отклонение заявки" | "rejection of a request";
    action_request_withdraw: "soʻrov qaytarib olinishi" | "отзыв заявки" | "withdrawal of a request";
    action_give_back: "toʻlovchiga qaytarish" | "возврат плательщику" | "giving a payment back";
    action_case: "ish hal qilinishi" | "решение дела" | "resolution of a case";
    action_booking_cancel: "band qilish bekor qilinishi" | "отмена брони" | "cancellation of a booking";
    action_staff: "xodim hisobi" | "учётная запись" | "an account of the staff";
    action_token: "dastur kaliti" | "ключ программы" | "a program's token";
    action_console: "rol yetmaydi" | "не та роль" | "a page above the role";
    action_form: "begona shakl" | "чужая форма" | "a form of no page of ours";
    action_replay: "xabarni qayta yuborish" | "повторная отправка" | "sending again";
    code_hold_over: "ushlab turish muddati tugagan edi" | "время удержания вышло" | "the hold was over";
    code_overpaid: "buyurtma avval toʻlangan edi" | "заказ уже был оплачен" | "the order had been paid";
    code_order_over: "buyurtma yopilgan edi" | "заказ был закрыт" | "the order was over";
    code_differs: "toʻlovchi, summa yoki valyuta boshqa" | "другой плательщик, сумма или валюта" | "another payer, amount or currency";
    code_unknown_order: "bunday buyurtma yoʻq" | "такого заказа нет" | "no such order";
    code_wrong_payer: "boshqa odam toʻlayapti" | "платит другой человек" | "another payer";
    code_wrong_price: "narxi boshqa" | "другая цена" | "another price";
    code_not_payable: "toʻlab boʻlmaydi" | "оплатить нельзя" | "can't be paid";
    code_slot_taken: "vaqt band" | "слот занят" | "the slot is taken";
    code_slot_past: "vaqt oʻtib ketgan" | "слот в прошлом" | "the slot is in the past";
    code_needs_new_order: "yangi buyurtma kerak" | "нужен новый заказ" | "a new order is needed";
    error_ledger: "Hisob daftari rad etdi:" | "Книга отказала:" | "The ledger refuses:";
    error_no_tenant: "Bunday mijoz yoʻq:" | "Такого клиента нет:" | "There is no tenant:";
    error_endpoint_off: "Bu manzil oʻchirilgan." | "Этот адрес выключен." | "This endpoint is switched off.";
    event_payment_performed: "toʻlov oʻtdi" | "платёж проведён" | "a payment was performed";
    event_payment_reversed: "toʻlov qaytdi" | "платёж вернулся" | "a payment went back";
    event_payment_refund_due: "toʻlov qaytariladi" | "платёж будет возвращён" | "a payment will go back";
    event_booking_confirmed: "vaqt band qilindi" | "слот забронирован" | "a slot is booked";
    event_booking_cancelled: "band qilish bekor qilindi" | "бронь отменена" | "a booking is cancelled";
    event_refund_posted: "mablagʻ qaytarildi" | "возврат проведён" | "a refund is posted";
    event_fee_charged: "abonent toʻlovi yechildi" | "абонплата списана" | "a fee is charged";
    event_fee_overdue: "abonent toʻlovi kechikdi" | "абонплата просрочена" | "a fee is overdue";
    event_fee_reminder: "qarz eslatildi" | "напоминание о долге" | "a fee is reminded of";
    event_access_suspended: "kirish toʻxtatilsin" | "доступ приостановить" | "access should be suspended";
    event_access_restored: "kirish tiklandi" | "доступ восстановлен" | "access is restored";
    event_hold: "band pul haqida" | "о холде" | "about a hold";
    event_allowance_refilled: "bepul meʼyor toʻldirildi" | "норма пополнена" | "an allowance is refilled";
    job_payme_sweep: "muddati oʻtgan Payme toʻlovlarini yopish" | "закрывает просроченные платежи Payme" | "times out Payme's promises";
    job_fee_run: "oylik yechim" | "месячные списания" | "charges the month's fees";
    job_reminders: "qarz eslatmalari" | "напоминания о долгах" | "reminds of unpaid fees";
    job_hold_reconcile: "egasiz bandlarni yakunlash" | "завершает брошенные холды" | "ends holds that nobody ended";
    job_hold_waiting: "navbatda turganini aytish" | "сообщает, что задача в очереди" | "tells who waits in the queue";
    job_pocket_expiry: "muddati tugagan choʻntaklar" | "списывает просроченные карманы" | "ends pockets whose time is over";
    job_allowance_sweep: "bepul meʼyorlarni toʻldirish" | "пополняет нормы" | "refills allowances";
    job_outbox: "xabarlarni yetkazish" | "доставляет события" | "delivers events";
    job_telegram_refunds: "yulduzlarni qaytarish" | "возвращает звёзды" | "gives stars back";
    job_telegram_reconcile: "Telegram roʻyxati bilan solishtirish" | "сверяется со списком Telegram" | "compares with Telegram's list";
    code_to_wallet: "hamyonga" | "в кошелёк" | "into the wallet";
}

impl Words {
    /// What a kind is called; a product's own kind is called as it is.
    pub fn kind_name<'a>(&self, kind: &'a str) -> &'a str
    where
        Self: 'a,
    {
        let known: &'static str = match kind {
            "top_up" => self.kind_top_up,
            "top_up_reversal" => self.kind_top_up_reversal,
            "subscription_fee" => self.kind_subscription_fee,
            "refund" => self.kind_refund,
            "adjustment" => self.kind_adjustment,
            "grant" => self.kind_grant,
            "expiry" => self.kind_expiry,
            "hold_charge" => self.kind_hold_charge,
            "booking" => self.kind_booking,
            own => return own,
        };
        known
    }

    /// What the status of a request is called.
    pub fn request_status(&self, status: &str) -> &'static str {
        match status {
            "posted" => self.status_posted,
            "rejected" => self.status_rejected,
            "withdrawn" => self.status_withdrawn,
            "expired" => self.status_expired,
            _ => self.status_waiting,
        }
    }

    /// What the queue of a hold is called.
    pub fn queue_name(&self, queue: &str) -> &'static str {
        match queue {
            "priority" => self.queue_priority,
            _ => self.queue_plain,
        }
    }

    /// What the status of a hold is called. One whose time is over and that nobody has ended yet keeps no money.
    pub fn hold_status(&self, hold: &Hold, now: DateTime<Utc>) -> &'static str {
        match hold.status() {
            "settled" => self.hold_settled,
            "released" => self.hold_released,
            _ if !hold.is_live(now) => self.status_expired,
            "started" => self.hold_started,
            _ => self.hold_placed,
        }
    }

    /// What whoever ended a hold is called.
    pub fn hold_ended_by(&self, by: EndedBy) -> &'static str {
        match by {
            EndedBy::Worker => self.by_worker,
            EndedBy::Reconciler => self.by_reconciler,
            EndedBy::Canceller => self.by_canceller,
            EndedBy::Successor => self.by_successor,
        }
    }

    /// What a moment of an order's story is called.
    pub fn moment(&self, what: &str) -> &'static str {
        match what {
            "ordered" => self.moment_ordered,
            "closed" => self.moment_closed,
            "yes" => self.moment_yes,
            "no" => self.moment_no,
            "held" => self.moment_held,
            "hold_ended" => self.moment_hold_ended,
            "promised" => self.moment_promised,
            "paid" => self.moment_paid,
            "payment_cancelled" => self.moment_payment_cancelled,
            "booked" => self.moment_booked,
            "cancelled" => self.moment_cancelled,
            "refund_asked" => self.moment_refund_asked,
            "refund_checking" => self.moment_refund_checking,
            "refunded" => self.moment_refunded,
            "refund_failed" => self.moment_refund_failed,
            "case_opened" => self.moment_case_opened,
            _ => self.moment_case_resolved,
        }
    }

    /// What the status of a refund to a payer is called.
    pub fn refund_status(&self, status: &str) -> &'static str {
        match status {
            "refunded" => self.refund_refunded,
            "failed" => self.refund_failed,
            "checking" => self.refund_checking,
            _ => self.refund_waiting,
        }
    }

    /// What a kind of case is called.
    pub fn case_kind(&self, kind: &str) -> &'static str {
        match kind {
            "mismatch" => self.case_mismatch,
            "foreign_currency" => self.case_foreign_currency,
            "refund_failed" => self.case_refund_failed,
            "lost_payment" => self.case_lost_payment,
            "unasked_refund" => self.case_unasked_refund,
            "negative_balance" => self.case_negative_balance,
            "unread_update" => self.case_unread_update,
            _ => self.case_unread_line,
        }
    }

    /// What became of a case.
    pub fn case_resolution(&self, resolution: &str) -> &'static str {
        match resolution {
            "refund" => self.resolution_refund,
            "keep" => self.resolution_keep,
            _ => self.resolution_closed,
        }
    }

    /// What a role is called.
    pub fn role_name<'a>(&self, role: &'a str) -> &'a str
    where
        Self: 'a,
    {
        let known: &'static str = match role {
            "viewer" => self.role_viewer,
            "agent" => self.role_agent,
            "approver" => self.role_approver,
            "admin" => self.role_admin,
            other => return other,
        };
        known
    }

    /// What an event tells; nothing of one that isn't known here.
    pub fn event_name(&self, kind: &str) -> &'static str {
        match kind {
            "payment.performed" => self.event_payment_performed,
            "payment.reversed" => self.event_payment_reversed,
            "payment.refund_due" => self.event_payment_refund_due,
            "booking.confirmed" => self.event_booking_confirmed,
            "booking.cancelled" => self.event_booking_cancelled,
            "refund.posted" => self.event_refund_posted,
            "fee.charged" => self.event_fee_charged,
            "fee.overdue" => self.event_fee_overdue,
            "fee.reminder" => self.event_fee_reminder,
            "access.suspended" => self.event_access_suspended,
            "access.restored" => self.event_access_restored,
            "allowance.refilled" => self.event_allowance_refilled,
            hold if hold.starts_with("hold.") => self.event_hold,
            _ => "",
        }
    }

    /// What a job does.
    pub fn job_name(&self, job: &Job) -> &'static str {
        match job {
            Job::PaymeSweep => self.job_payme_sweep,
            Job::FeeRun => self.job_fee_run,
            Job::Reminders => self.job_reminders,
            Job::HoldReconcile => self.job_hold_reconcile,
            Job::HoldWaiting => self.job_hold_waiting,
            Job::PocketExpiry => self.job_pocket_expiry,
            Job::AllowanceSweep => self.job_allowance_sweep,
            Job::Outbox => self.job_outbox,
            Job::TelegramRefunds => self.job_telegram_refunds,
            Job::TelegramReconcile => self.job_telegram_reconcile,
        }
    }

    /// What an action of the audit is.
    pub fn action_name(&self, action: &str) -> &'static str {
        match action {
            "log_in" => self.action_log_in,
            "log_out" => self.action_log_out,
            "refund" => self.refund,
            "adjustment" => self.adjustment,
            "request.approve" => self.action_request_approve,
            "request.reject" => self.action_request_reject,
            "request.withdraw" => self.action_request_withdraw,
            "payment.give_back" => self.action_give_back,
            "case.resolve" => self.action_case,
            "booking.cancel" => self.action_booking_cancel,
            "console" => self.action_console,
            "form" => self.action_form,
            "webhook.replay" => self.action_replay,
            "token" | "token.create" | "token.revoke" => self.action_token,
            staff if staff.starts_with("staff.") => self.action_staff,
            _ => "",
        }
    }

    /// What the codes in a moment of an order's story mean; nothing where there are none.
    pub fn codes(&self, what: &str, about: &str) -> Vec<&'static str> {
        if !matches!(what, "no" | "paid" | "refund_asked" | "case_opened" | "case_resolved") {
            return Vec::new();
        }
        about
            .split(' ')
            .filter_map(|code| {
                Some(match code {
                    "hold_over" => self.code_hold_over,
                    "overpaid" => self.code_overpaid,
                    "order_over" => self.code_order_over,
                    "differs" => self.code_differs,
                    "unknown_order" => self.code_unknown_order,
                    "wrong_payer" => self.code_wrong_payer,
                    "wrong_price" => self.code_wrong_price,
                    "not_payable" => self.code_not_payable,
                    "slot_taken" => self.code_slot_taken,
                    "slot_past" => self.code_slot_past,
                    "needs_new_order" => self.code_needs_new_order,
                    "booked" => self.moment_booked,
                    "credited" => self.code_to_wallet,
                    "person" => self.moment_case_opened,
                    "mismatch" => self.case_mismatch,
                    "refund_failed" => self.case_refund_failed,
                    "unasked_refund" => self.case_unasked_refund,
                    "refund" => self.moment_refund_asked,
                    "keep" => self.resolution_keep,
                    _ => return None,
                })
            })
            .collect()
    }

    /// What the status of a tenant is called.
    pub fn tenant_status(&self, status: &str) -> &'static str {
        match status {
            "suspended" => self.suspended,
            "closed" => self.closed,
            _ => self.active,
        }
    }
}

/// The name of a month, as it stands in a sentence: "December 2026".
pub fn month_name(language: Locale, year: i32, month: u32) -> String {
    const UZ_MONTHS: [&str; 12] =
        ["yanvar", "fevral", "mart", "aprel", "may", "iyun", "iyul", "avgust", "sentabr", "oktabr", "noyabr", "dekabr"];
    const RU_MONTHS: [&str; 12] = [
        "январь",
        "февраль",
        "март",
        "апрель",
        "май",
        "июнь",
        "июль",
        "август",
        "сентябрь",
        "октябрь",
        "ноябрь",
        "декабрь",
    ];
    const EN_MONTHS: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    let index = usize::try_from(month.saturating_sub(1)).unwrap_or_default().min(11);
    match language {
        Locale::Uz => format!("{year}-yil {}", UZ_MONTHS[index]),
        Locale::Ru => format!("{} {year}", RU_MONTHS[index]),
        Locale::En => format!("{} {year}", EN_MONTHS[index]),
    }
}

/// Why a tenant is overdue: "fee for December 2026 unpaid: needs 150 000, has 42 000".
pub fn why_overdue(language: Locale, month: &str, plan: &str, needs: &str, has: &str) -> String {
    match language {
        Locale::Uz => format!("{month} uchun toʻlov ({plan}) toʻlanmagan: {needs} kerak, {has} bor"),
        Locale::Ru => format!("плата за {month} ({plan}) не списана: нужно {needs}, есть {has}"),
        Locale::En => format!("fee for {month} ({plan}) unpaid: needs {needs}, has {has}"),
    }
}

/// Why a due isn't paid although there is enough for it: an older one of the same wallet comes first.
pub fn waits_for_older(language: Locale, older: &str) -> String {
    match language {
        Locale::Uz => format!("Avval eskisi toʻlanadi: {older}"),
        Locale::Ru => format!("Сначала оплачивается старшая: {older}"),
        Locale::En => format!("The older one is paid first: {older}"),
    }
}
