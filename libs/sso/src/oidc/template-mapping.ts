import { ConfigError, mapUsernameToMxidLocalpart, type OidcMappingProvider } from '@rookery/module-api';
import { compileText, TemplateError } from '@rookery/templates';
import type { Claims } from './oidc-claims.js';

type Template = (values: Readonly<Record<string, unknown>>) => string;

const known = [
  'subject_template',
  'subject_claim',
  'picture_template',
  'picture_claim',
  'localpart_template',
  'confirm_localpart',
  'display_name_template',
  'email_template',
  'extra_attributes',
];

/**
 * The built-in mapping: templates of Jinja's kind that see the claims as `user`.
 * @throws ConfigError naming what is wrong
 */
export function templateMapping(raw: unknown): OidcMappingProvider {
  const given = sectionOf(raw ?? {}, []);
  for (const name of Object.keys(given))
    if (!known.includes(name)) throw new ConfigError(`is unknown; there are ${known.join(', ')}`, [name]);
  const subject =
    templateOf(given, 'subject_template') ?? claimOf(given, 'subject_claim') ?? compileText('{{ user.sub }}');
  const picture =
    templateOf(given, 'picture_template') ?? claimOf(given, 'picture_claim') ?? compileText('{{ user.picture }}');
  const localpart = templateOf(given, 'localpart_template');
  const displayName = templateOf(given, 'display_name_template');
  const email = templateOf(given, 'email_template');
  const { confirm_localpart: confirm = false } = given;
  if (typeof confirm !== 'boolean') throw new ConfigError('expected true or false', ['confirm_localpart']);
  const extra = Object.entries(sectionOf(given['extra_attributes'] ?? {}, ['extra_attributes'])).map(
    ([name, source]) => [name, compiled(source, ['extra_attributes', name])] as const,
  );
  return {
    getRemoteUserId: (userinfo) => render(subject, userinfo) ?? '',
    mapUserAttributes(userinfo, _token, failures) {
      const name = localpart && render(localpart, userinfo);
      // An address that the provider itself doubts is nobody's here.
      const address = email && userinfo['email_verified'] !== false ? render(email, userinfo) : undefined;
      return {
        localpart:
          name === undefined ? undefined : mapUsernameToMxidLocalpart(name) + (failures > 0 ? String(failures) : ''),
        confirmLocalpart: confirm,
        displayName: displayName && render(displayName, userinfo),
        picture: render(picture, userinfo),
        emails: address === undefined ? [] : [address],
      };
    },
    getExtraAttributes: (userinfo) =>
      Object.fromEntries(extra.map(([name, template]) => [name, template({ user: withoutNulls(userinfo) })])),
  };
}

/** @returns nothing for a template that gives nothing */
function render(template: Template, userinfo: Claims): string | undefined {
  const text = template({ user: withoutNulls(userinfo) }).trim();
  return text === '' ? undefined : text;
}

/** What is not there must not become the text of its absence: everybody would be called the same. */
const withoutNulls = (claims: Claims): Claims =>
  Object.fromEntries(Object.entries(claims).filter(([, value]) => value !== null && value !== undefined));

function templateOf(given: Claims, name: string): Template | undefined {
  return given[name] === undefined || given[name] === null ? undefined : compiled(given[name], [name]);
}

/** The old form: the name of a claim. */
function claimOf(given: Claims, name: string): Template | undefined {
  const claim = given[name];
  if (claim === undefined || claim === null) return undefined;
  if (typeof claim !== 'string' || claim === '') throw new ConfigError('expected the name of a claim', [name]);
  return ({ user }) => {
    const value = (user as Claims)[claim];
    return typeof value === 'string' || typeof value === 'number' ? String(value) : '';
  };
}

function compiled(source: unknown, path: readonly string[]): Template {
  if (typeof source !== 'string') throw new ConfigError('expected a template', path);
  try {
    return compileText(source);
  } catch (error) {
    if (error instanceof TemplateError) throw new ConfigError(error.message, path);
    throw error;
  }
}

function sectionOf(value: unknown, path: readonly string[]): Claims {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new ConfigError('expected a section', path);
  }
  return value as Claims;
}
