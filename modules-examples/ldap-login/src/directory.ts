import {
  AndFilter,
  Client,
  ConstraintViolationError,
  EqualityFilter,
  InappropriateAuthError,
  InvalidCredentialsError,
  UnwillingToPerformError,
} from 'ldapts';
import type { LdapInstance } from './config.js';

/** Somebody whom the directory knows. */
export interface Person {
  readonly id: string;
  readonly username: string;
  readonly displayName: string | undefined;
  readonly mails: readonly string[];
}

/** How directories say no to somebody: a wrong password, an account without one, one that is locked or inactive. */
const refusals = [InvalidCredentialsError, InappropriateAuthError, ConstraintViolationError, UnwillingToPerformError];

/** A distinguished name as directories compare them: without regard to large and small letters, and spaces around parts. */
const comparable = (dn: string): string =>
  dn
    .toLowerCase()
    .replace(/\s*(?<!\\)([,=+])\s*/g, '$1')
    .trim();

/** Whose name and password these are; `undefined` when they are nobody's. @throws Error when the directory is away */
export async function findPerson(
  directory: LdapInstance,
  username: string,
  password: string,
): Promise<Person | undefined> {
  // An empty password is a question without a name: directories answer it with success.
  if (username === '' || password === '') return undefined;
  const { url, startTls, base, bindDn, bindPassword, uid, displayName, mail, group, filter: among } = directory;
  const attributes = [uid, displayName, mail, 'memberof'].map((name) => name.toLowerCase());
  const client = new Client({ url, timeout: 8_000, connectTimeout: 5_000, strictDN: false });
  try {
    if (startTls) await client.startTLS();
    if (bindDn !== undefined) await client.bind(bindDn, bindPassword);
    const named = new EqualityFilter({ attribute: uid, value: username });
    const filter = among === undefined ? named : new AndFilter({ filters: [among, named] });
    const { searchEntries } = await client.search(base, { scope: 'sub', filter, attributes, sizeLimit: 2 });
    const [entry, ...others] = searchEntries;
    if (!entry || others.length > 0) return undefined;
    const read = (attribute: string): string[] => textsOf(entry, attribute);
    const isIn = (wanted: string): boolean => read('memberof').some((one) => comparable(one) === comparable(wanted));
    if (group !== undefined && !isIn(group)) return undefined;
    try {
      await client.bind(entry.dn, password);
    } catch (error) {
      if (refusals.some((refusal) => error instanceof refusal)) return undefined;
      throw error;
    }
    const [name = username] = read(uid);
    return { id: name, username: name, displayName: read(displayName)[0], mails: read(mail) };
  } finally {
    await client.unbind().catch(() => undefined);
  }
}

/** Values of an attribute. Directories make no difference between large and small letters in its name. */
function textsOf(entry: Readonly<Record<string, unknown>>, attribute: string): string[] {
  return Object.entries(entry)
    .filter(([name]) => name.toLowerCase() === attribute.toLowerCase())
    .flatMap(([, value]) => value)
    .filter((one): one is string => typeof one === 'string' && one !== '');
}
