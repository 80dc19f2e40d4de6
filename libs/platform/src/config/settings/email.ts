import * as k from '../kinds.js';
import { optional, setting } from '../setting.js';

const subjects = {
  message_from_person_in_room: '[%(app)s] You have a message on %(app)s from %(person)s in the %(room)s room...',
  message_from_person: '[%(app)s] You have a message on %(app)s from %(person)s...',
  messages_from_person: '[%(app)s] You have messages on %(app)s from %(person)s...',
  messages_in_room: '[%(app)s] You have messages on %(app)s in the %(room)s room...',
  messages_in_room_and_others: '[%(app)s] You have messages on %(app)s in the %(room)s room and others...',
  messages_from_person_and_others: '[%(app)s] You have messages on %(app)s from %(person)s and others...',
  invite_from_person: '[%(app)s] %(person)s has invited you to chat on %(app)s...',
  invite_from_person_to_room: '[%(app)s] %(person)s has invited you to join the %(room)s room on %(app)s...',
  invite_from_person_to_space: '[%(app)s] %(person)s has invited you to join the %(space)s space on %(app)s...',
  password_reset: '[%(server_name)s] Password reset',
  email_validation: '[%(server_name)s] Validate your email',
  email_already_in_use: '[%(server_name)s] Email already in use',
} as const;

const templates = {
  notif_template_html: 'notif_mail.html',
  notif_template_text: 'notif_mail.txt',
  expiry_template_html: 'notice_expiry.html',
  expiry_template_text: 'notice_expiry.txt',
  password_reset_template_html: 'password_reset.html',
  password_reset_template_text: 'password_reset.txt',
  password_reset_template_success_html: 'password_reset_success.html',
  password_reset_template_failure_html: 'password_reset_failure.html',
  password_reset_template_confirmation_html: 'password_reset_confirmation.html',
  registration_template_html: 'registration.html',
  registration_template_text: 'registration.txt',
  registration_template_success_html: 'registration_success.html',
  registration_template_failure_html: 'registration_failure.html',
  already_in_use_template_html: 'already_in_use.html',
  already_in_use_template_text: 'already_in_use.txt',
  add_threepid_template_html: 'add_threepid.html',
  add_threepid_template_text: 'add_threepid.txt',
  add_threepid_template_success_html: 'add_threepid_success.html',
  add_threepid_template_failure_html: 'add_threepid_failure.html',
} as const;

type Texts<T, P extends string> = { readonly [K in keyof T as `${P}${K & string}`]: ReturnType<typeof textSetting> };
const textSetting = (value: string, doc: string) => setting(k.text({ empty: false }), value, doc);
const texts = <T extends Readonly<Record<string, string>>, const P extends string>(
  all: T,
  prefix: P,
  doc: (name: string) => string,
) =>
  Object.fromEntries(
    Object.entries(all).map(([name, value]) => [`${prefix}${name}`, textSetting(value, doc(name))]),
  ) as Texts<T, P>;

/** Mails. */
export const emailSettings = {
  'email.smtp_host': setting(k.text({ empty: false }), 'localhost', 'Mail server.'),
  'email.smtp_port': optional(k.port, 'Its port.', { rule: 'Default 25; 465 with `email.force_tls`.' }),
  'email.smtp_user': optional(k.text({ empty: false }), 'User name there.'),
  'email.smtp_pass': optional(k.secretText, 'Password there.', { secret: true }),
  'email.force_tls': setting(k.flag, false, 'Speak TLS from the first byte.'),
  'email.require_transport_security': setting(k.flag, false, 'Send nothing without TLS.'),
  'email.enable_tls': setting(k.flag, true, 'Use TLS where the mail server offers it.', {
    rule: 'Must be true for `email.force_tls` and `email.require_transport_security`.',
  }),
  'email.tlsname': optional(
    k.text({ empty: false }),
    "Name in the mail server's certificate; `email.smtp_host` when unset.",
  ),
  'email.notif_from': optional(k.text({ empty: false }), 'Sender, such as `%(app)s <noreply@example.org>`.', {
    rule: 'Needed once the section `email` has anything in it.',
  }),
  'email.app_name': setting(k.text(), 'Matrix', 'What `%(app)s` stands for.'),
  'email.enable_notifs': setting(k.flag, false, 'Send mails about missed messages.'),
  'email.notif_for_new_users': setting(
    k.flag,
    true,
    'New users get them, at the addresses that their accounts are made with.',
  ),
  'email.notif_delay_before_mail': setting(k.duration, 600_000, 'How long a message must be unread.', {
    since: '1.99',
  }),
  'email.client_base_url': optional(k.httpUrl, 'Links in mails lead to this client; to matrix.to when unset.'),
  'email.riot_base_url': optional(k.httpUrl, 'Old form of `email.client_base_url`.', {
    deprecated: 'write email.client_base_url',
  }),
  'email.validation_token_lifetime': setting(k.duration, 3_600_000, 'How long links in mails work.'),
  'email.invite_client_location': optional(k.httpUrl, 'Client that invited people are led to.'),
  'email.redact_content': optional(k.flag, 'Old form of `push.include_content`, inverted.', {
    deprecated: 'write push.include_content',
  }),
  'email.template_dir': optional(k.path, 'Old form of `templates.custom_template_directory`.', {
    deprecated: 'write templates.custom_template_directory',
  }),
  ...texts(subjects, 'email.subjects.', (name) => `Subject of mails: ${name.replaceAll('_', ' ')}.`),
  ...texts(templates, 'email.', (name) => `File name of a page or mail: ${name.replaceAll('_', ' ')}.`),
};
