import * as k from '../kinds.js';
import { optional, refused, secretFile, setting } from '../setting.js';
import { localpart, providerEntry } from './shapes.js';

/** An empty text is what some files have for none. */
const mxcOrNone = k.text({ pattern: /^(?:mxc:\/\/[^/]+\/[^/]+)?$/, expected: 'an mxc:// URI' });
const mxc = k.text({ pattern: /^mxc:\/\/[^/]+\/[^/]+$/, expected: 'an mxc:// URI' });

const requirements = k.list(
  k.object({
    attribute: k.need(k.text({ empty: false }), 'Name of the attribute.'),
    value: k.maybe(k.text(), 'What it must be, or contain when it is a list.'),
    one_of: k.maybe(k.list(k.text()), 'Values of which one must match.'),
  }),
);

const oidcFields = {
  idp_id: k.need(
    k.text({
      pattern: /^[A-Za-z0-9._~-]{1,250}$/,
      expected: 'up to 250 letters, digits, dots, hyphens, tildes and underscores',
    }),
    'Never-changing id.',
  ),
  idp_name: k.need(k.text({ empty: false }), 'Name shown to people.'),
  idp_icon: k.maybe(mxc, 'Picture shown to people.'),
  idp_brand: k.maybe(k.text(), 'Brand, for the style of the button.'),
  discover: k.field(k.flag, true, 'Fetch the endpoints from the issuer.'),
  issuer: k.need(k.text({ empty: false }), 'Issuer URL.'),
  client_id: k.need(k.text({ empty: false }), 'Our id there.'),
  client_secret: k.maybe(k.secretText, 'Our secret there.'),
  client_secret_path: k.fileOf('client_secret'),
  client_secret_jwt_key: k.maybe(
    k.object({
      key: k.maybe(k.secretText, 'Key that signs the secret.'),
      key_file: k.fileOf('key'),
      jwt_header: k.need(k.mapOf(k.anything), 'Header; `alg` is needed.'),
      jwt_payload: k.field(k.mapOf(k.anything), {}, 'More claims.'),
    }),
    'Make the secret as a signed token.',
  ),
  client_auth_method: k.field(
    k.oneOf('client_secret_basic', 'client_secret_post', 'none'),
    'client_secret_basic',
    'How we authenticate.',
  ),
  pkce_method: k.field(k.oneOf('auto', 'always', 'never'), 'auto', 'Whether to use PKCE.'),
  id_token_signing_alg_values_supported: k.maybe(k.list(k.text()), 'Algorithms, where discovery does not tell.'),
  scopes: k.field(k.list(k.text({ empty: false })), ['openid'], 'Scopes asked for.'),
  authorization_endpoint: k.maybe(k.httpUrl, 'Needed without discovery.'),
  token_endpoint: k.maybe(k.httpUrl, 'Needed without discovery.'),
  userinfo_endpoint: k.maybe(k.httpUrl, 'Needed without discovery and without the openid scope.'),
  jwks_uri: k.maybe(k.httpUrl, 'Needed without discovery, with the openid scope.'),
  skip_verification: k.field(k.flag, false, 'Do not check the metadata.'),
  user_profile_method: k.field(k.oneOf('auto', 'userinfo_endpoint'), 'auto', 'Where the profile comes from.'),
  redirect_uri: k.maybe(k.httpUrl, 'Overrides our callback address.'),
  additional_authorization_parameters: k.field(k.mapOf(k.text()), {}, 'More parameters of the authorization request.'),
  passthrough_authorization_parameters: k.field(k.list(k.text()), [], 'Query parameters passed on from the client.'),
  allow_existing_users: k.field(k.flag, false, 'A login may take over an existing account of that name.'),
  enable_registration: k.field(k.flag, true, 'A login may make an account.'),
  user_mapping_provider: k.maybe(
    k.object({
      module: k.maybe(k.text({ empty: false }), 'Package name, or path of a module; built in when unset.'),
      config: k.field(k.anything, undefined, 'Templates of the built-in one, or what the module takes.'),
    }),
    'Turns claims into an account.',
  ),
  attribute_requirements: k.field(requirements, [], 'What a user must have.'),
  backchannel_logout_enabled: k.field(k.flag, false, 'Honour back-channel logouts.'),
  backchannel_logout_ignore_sub: k.field(k.flag, false, 'Look at the session only.'),
};
const oidcProvider = k.object(oidcFields);
/** One entry of `oidc_providers`. */
export type OidcProviderSetting = k.KindValue<typeof oidcProvider>;

/** Sign-in through others, and the ways of the past. */
export const authSettings = {
  'sso.client_whitelist': setting(
    k.list(k.text({ empty: false })),
    [],
    'Beginnings of client addresses that get a login without a confirmation page.',
  ),
  'sso.update_profile_information': setting(k.flag, false, 'Take name and avatar over at every login.'),
  'sso.template_dir': optional(k.path, 'Old form of `templates.custom_template_directory`.', {
    deprecated: 'write templates.custom_template_directory',
  }),
  oidc_providers: setting(k.list(oidcProvider), [], 'OpenID Connect and OAuth2 providers.', { secret: true }),
  oidc_config: optional(
    k.object({
      ...oidcFields,
      enabled: k.field(k.flag, false, 'Switches it on.'),
      idp_id: k.field(oidcFields.idp_id.kind, 'oidc', 'Id.'),
      idp_name: k.field(k.text(), 'OIDC', 'Name.'),
    }),
    'Old form of one provider.',
    { deprecated: 'write oidc_providers', secret: true },
  ),
  'saml2_config.enabled': setting(k.flag, true, 'Sign-in through SAML2, once `sp_config` or `config_path` is set.'),
  'saml2_config.sp_config': optional(k.mapOf(k.anything), 'Set-up of the service provider, in line.', { secret: true }),
  'saml2_config.config_path': optional(k.path, 'File with it.'),
  'saml2_config.idp_name': setting(k.text(), 'SAML', 'Name shown to people.'),
  'saml2_config.idp_icon': optional(mxc, 'Picture shown to people.'),
  'saml2_config.idp_brand': optional(k.text(), 'Brand, for the style of the button.'),
  'saml2_config.idp_entityid': optional(k.text(), 'Which provider, when the metadata describe several.'),
  'saml2_config.saml_session_lifetime': setting(k.duration, 900_000, 'How long a sign-in may take.'),
  'saml2_config.user_mapping_provider': optional(
    k.object({
      module: k.maybe(k.text({ empty: false }), 'Package name, or path of a module; built in when unset.'),
      config: k.field(
        k.anything,
        undefined,
        '`mxid_source_attribute`, `mxid_mapping` of the built-in one, or what the module takes.',
      ),
    }),
    'Turns attributes into an account.',
  ),
  'saml2_config.grandfathered_mxid_source_attribute': optional(
    k.text(),
    'Attribute by which accounts of the past are found.',
    { default: 'uid' },
  ),
  'saml2_config.mxid_source_attribute': optional(k.text(), 'Old form.', {
    deprecated: 'write saml2_config.user_mapping_provider.config.mxid_source_attribute',
  }),
  'saml2_config.mxid_mapping': optional(k.oneOf('hexencode', 'dotreplace'), 'Old form.', {
    deprecated: 'write saml2_config.user_mapping_provider.config.mxid_mapping',
  }),
  'saml2_config.attribute_requirements': setting(requirements, [], 'What a user must have.'),
  'cas_config.enabled': optional(k.flag, 'Sign-in through CAS; on when the section has a `server_url`.'),
  'cas_config.server_url': optional(k.httpUrl, 'Address of the CAS server.'),
  'cas_config.service_url': {
    ...optional(k.anything, 'Removed. It follows from public_baseurl.'),
    removed: { since: '1.34', refuse: false, instead: 'It follows from public_baseurl.' },
  },
  'cas_config.idp_name': setting(k.text(), 'CAS', 'Name shown to people.'),
  'cas_config.idp_icon': optional(mxc, 'Picture shown to people.'),
  'cas_config.idp_brand': optional(k.text(), 'Brand, for the style of the button.'),
  'cas_config.protocol_version': optional(k.oneOf(1, 2, 3), 'Version of the protocol; 2 when unset.'),
  'cas_config.displayname_attribute': optional(k.text(), 'Attribute with the name.'),
  'cas_config.required_attributes': setting(k.mapOf(k.anything), {}, 'What a user must have; `null` for any value.'),
  'cas_config.enable_registration': setting(k.flag, true, 'A login may make an account.'),
  'cas_config.allow_numeric_ids': setting(k.flag, false, 'Take names of digits only.'),
  'cas_config.numeric_ids_prefix': setting(
    k.text({ pattern: /^[a-z]+$/, expected: 'lower-case letters' }),
    'u',
    'Put before them.',
  ),
  'jwt_config.enabled': setting(k.flag, false, 'Log in with a JSON web token.'),
  'jwt_config.secret': optional(k.secretText, 'Key that tokens are checked with.', {
    secret: true,
    rule: 'Needed with `jwt_config.enabled`.',
  }),
  'jwt_config.algorithm': optional(k.text({ empty: false }), 'How they are signed.', {
    rule: 'Needed with `jwt_config.enabled`.',
  }),
  'jwt_config.subject_claim': setting(k.text({ empty: false }), 'sub', 'Claim with the localpart.'),
  'jwt_config.display_name_claim': optional(k.text({ empty: false }), 'Claim with the name.'),
  'jwt_config.issuer': optional(k.text(), 'Issuer that tokens must have.'),
  'jwt_config.audiences': optional(k.list(k.text(), { one: true }), 'Audiences of which tokens must have one.'),
  'matrix_authentication_service.enabled': setting(k.flag, false, 'Leave logins to an authentication service.', {
    since: '1.136',
    rule: 'Excludes every other way of logging in.',
  }),
  'matrix_authentication_service.endpoint': setting(k.httpUrl, 'http://localhost:8080', 'Where it is.'),
  'matrix_authentication_service.force_http2': setting(k.flag, false, 'Speak HTTP/2 to it without TLS.'),
  'matrix_authentication_service.secret': optional(k.secretText, 'Secret shared with it.', {
    secret: true,
    rule: 'Needed with `matrix_authentication_service.enabled`.',
  }),
  'matrix_authentication_service.secret_path': secretFile(k.path, 'matrix_authentication_service.secret'),
  password_providers: optional(k.list(providerEntry), 'Old form of modules that check passwords.', {
    deprecated: 'list them under modules',
  }),
  ldap_config: optional(k.mapOf(k.anything), 'Old form of a module that asks LDAP; nothing reads it.', {
    deprecated: 'list a module under modules, which `rookery module suggest` writes',
    rule: 'Refused while `enabled` is true.',
    secret: true,
  }),
  spam_checker: optional(k.list(providerEntry, { one: true }), 'Old form of modules against spam.', {
    deprecated: 'list them under modules',
  }),
  third_party_event_rules: optional(providerEntry, 'Old form of modules with event rules.', {
    deprecated: 'list it under modules',
  }),
  'account_validity.enabled': setting(
    k.flag,
    false,
    'Accounts expire. Those of before do so as well: a period after the next start, or up to a tenth of it sooner.',
  ),
  'account_validity.period': optional(k.duration, 'How long they last.', {
    rule: 'Needed with `account_validity.enabled`.',
  }),
  'account_validity.renew_at': optional(k.duration, 'How long before, a mail asks to renew.'),
  'account_validity.renew_email_subject': setting(k.text(), 'Renew your %(app)s account', 'Subject of that mail.'),
  'account_validity.account_renewed_html_path': setting(
    k.text({ empty: false }),
    'account_renewed.html',
    'Page after renewing.',
  ),
  'account_validity.invalid_token_html_path': setting(
    k.text({ empty: false }),
    'invalid_token.html',
    'Page for a wrong link.',
  ),
  'account_validity.template_dir': optional(k.path, 'Old form of `templates.custom_template_directory`.', {
    deprecated: 'write templates.custom_template_directory',
  }),
  'user_consent.template_dir': optional(k.path, 'Folder with the documents users consent to.', {
    rule: 'Together with `user_consent.version`.',
  }),
  'user_consent.version': optional(k.text({ empty: false, numbers: true }), 'Version of the document.', {
    rule: 'Together with `user_consent.template_dir`.',
  }),
  'user_consent.server_notice_content': optional(
    k.mapOf(k.anything),
    'Content of a notice sent to those who have not consented.',
  ),
  'user_consent.send_server_notice_to_guests': setting(k.flag, false, 'Send it to guests, too.'),
  'user_consent.block_events_error': optional(
    k.text({ empty: false }),
    'Refuse events with this message until there is consent; `%(consent_uri)s` is the page.',
  ),
  'user_consent.require_at_registration': setting(k.flag, false, 'Ask at registration.'),
  'user_consent.policy_name': setting(k.text({ empty: false }), 'Privacy Policy', 'Name of the document.'),
  'server_notices.system_mxid_localpart': optional(
    localpart,
    'Localpart of the user who sends server notices; switches them on.',
  ),
  'server_notices.system_mxid_display_name': optional(k.text(), 'Name of that user.'),
  'server_notices.system_mxid_avatar_url': optional(mxcOrNone, 'Avatar of that user.'),
  'server_notices.room_name': setting(k.text(), 'Server Notices', 'Name of the room.'),
  'server_notices.room_avatar_url': optional(mxcOrNone, 'Avatar of the room.'),
  'server_notices.room_topic': optional(k.text(), 'Topic of the room.'),
  'server_notices.auto_join': setting(k.flag, false, 'Users join without asking.'),
};

/** What names of the past are refused. */
export const refusedAuthSettings = {
  'experimental_features.msc3861': refused(k.anything, '1.157', 'Set up matrix_authentication_service instead.'),
  'experimental_features.groups_enabled': refused(k.anything, '1.61', 'Groups are gone; use spaces. Leave it out.'),
};
