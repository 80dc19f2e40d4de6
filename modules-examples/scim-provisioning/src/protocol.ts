/** SCIM 2.0 as far as users go. @see RFC 7643, RFC 7644 */

const core = 'urn:ietf:params:scim:schemas:core:2.0';
const messages = 'urn:ietf:params:scim:api:messages:2.0';
export const userSchema = `${core}:User`;

/** Why a request is refused. */
export class ScimError extends Error {
  override readonly name = 'ScimError';
  constructor(
    readonly status: number,
    detail: string,
    /** A word of the protocol. */
    readonly scimType?:
      'uniqueness' | 'invalidFilter' | 'invalidPath' | 'invalidValue' | 'invalidSyntax' | 'mutability',
  ) {
    super(detail);
  }
}

/** What a directory says of somebody. */
export interface Attributes {
  readonly userName: string;
  readonly externalId: string | undefined;
  readonly displayName: string | undefined;
  readonly emails: readonly string[];
  readonly active: boolean;
}

/** Somebody, as kept here. */
export interface User extends Attributes {
  readonly id: string;
  /** The account. */
  readonly userId: string;
  readonly createdMs: number;
  readonly modifiedMs: number;
}

export const scimJson = (status: number, body: object, headers: Record<string, string> = {}): Response =>
  new Response(JSON.stringify(body), {
    status,
    headers: { 'content-type': 'application/scim+json', 'cache-control': 'no-store', ...headers },
  });

export const errorAnswer = ({ status, message, scimType }: ScimError): Response =>
  scimJson(
    status,
    {
      schemas: [`${messages}:Error`],
      status: String(status),
      detail: message,
      ...(scimType === undefined ? {} : { scimType }),
    },
    status === 401 ? { 'www-authenticate': 'Bearer' } : {},
  );

/** A user as a directory sees them. */
export function userToWire(user: User, base: string): object {
  const { id, userName, externalId, displayName, emails, active, createdMs, modifiedMs } = user;
  return {
    schemas: [userSchema],
    id,
    userName,
    ...(externalId === undefined ? {} : { externalId }),
    ...(displayName === undefined ? {} : { displayName, name: { formatted: displayName } }),
    emails: emails.map((value, i) => ({ value, type: 'work', primary: i === 0 })),
    active,
    meta: {
      resourceType: 'User',
      created: new Date(createdMs).toISOString(),
      lastModified: new Date(modifiedMs).toISOString(),
      location: `${base}/Users/${id}`,
    },
  };
}

/** Things of one kind. */
export interface ScimList {
  readonly schemas: readonly string[];
  readonly totalResults: number;
  readonly startIndex: number;
  readonly itemsPerPage: number;
  readonly Resources: readonly object[];
}

export const listToWire = (resources: readonly object[], total: number, startIndex: number): ScimList => ({
  schemas: [`${messages}:ListResponse`],
  totalResults: total,
  startIndex,
  itemsPerPage: resources.length,
  Resources: resources,
});

const longestText = 500;
/** The server has no longer ones. */
const longestName = 256;
const maxEmails = 20;

const textAt = (name: string, value: unknown, longest = longestText): string | undefined => {
  if (value === undefined || value === null || value === '') return undefined;
  if (typeof value !== 'string' || value.length > longest)
    throw new ScimError(400, `${name} is no text of at most ${longest} characters`, 'invalidValue');
  if (value.includes('\0') || !value.isWellFormed())
    throw new ScimError(400, `${name} holds characters that cannot be stored`, 'invalidValue');
  return value;
};

const nameAt = (name: string, value: unknown): string | undefined => textAt(name, value, longestName);

/** Some directories write truth as a text. */
function truthAt(name: string, value: unknown): boolean {
  if (typeof value === 'boolean') return value;
  if (typeof value === 'string' && /^(?:true|false)$/i.test(value)) return value.toLowerCase() === 'true';
  throw new ScimError(400, `${name} is neither true nor false`, 'invalidValue');
}

function emailsAt(value: unknown): readonly string[] {
  if (value === undefined || value === null) return [];
  const list = Array.isArray(value) ? value : [value];
  const sorted = list
    .slice(0, maxEmails)
    .map((one: unknown) =>
      typeof one === 'object' && one !== null ? (one as Record<string, unknown>) : { value: one },
    )
    .sort((a, b) => Number(b['primary'] === true) - Number(a['primary'] === true));
  return [...new Set(sorted.flatMap((one) => textAt('emails', one['value']) ?? []))];
}

/** The name that others see, from whatever a directory gives. */
function displayNameOf({ displayName, name }: Record<string, unknown>): string | undefined {
  const parts = (typeof name === 'object' && name !== null ? name : {}) as Record<string, unknown>;
  const both = [parts['givenName'], parts['familyName']].filter((part) => typeof part === 'string' && part !== '');
  return nameAt('displayName', displayName) ?? nameAt('name', parts['formatted']) ?? nameAt('name', both.join(' '));
}

/** What a whole user in a request says. @param isActive where it does not say @throws ScimError */
export function attributesOf(body: unknown, isActive = true): Attributes {
  if (typeof body !== 'object' || body === null || Array.isArray(body))
    throw new ScimError(400, 'The body is no JSON object', 'invalidSyntax');
  const given = body as Record<string, unknown>;
  const userName = textAt('userName', given['userName']);
  if (userName === undefined) throw new ScimError(400, 'userName is missing', 'invalidValue');
  return {
    userName,
    externalId: textAt('externalId', given['externalId']),
    displayName: displayNameOf(given),
    emails: emailsAt(given['emails']),
    active: given['active'] === undefined ? isActive : truthAt('active', given['active']),
  };
}

type Change = Partial<Record<'userName' | 'externalId' | 'displayName' | 'name' | 'emails' | 'active', unknown>>;

const maxOperations = 100;

/** What becomes of somebody by the operations of a PATCH request. @throws ScimError */
export function patched(user: User, body: unknown): Attributes {
  const operations = (body as { readonly Operations?: unknown } | null)?.Operations;
  if (!Array.isArray(operations) || operations.length === 0 || operations.length > maxOperations)
    throw new ScimError(400, `Operations is no list of 1 to ${maxOperations}`, 'invalidSyntax');
  let now: Attributes = user;
  for (const operation of operations as readonly unknown[]) {
    const { op: given, path, value } = (operation ?? {}) as Readonly<Record<string, unknown>>;
    const op = String(given).toLowerCase();
    if (!['add', 'replace', 'remove'].includes(op))
      throw new ScimError(400, 'op is not add, replace or remove', 'invalidSyntax');
    if (path !== undefined) {
      const change = changeAt(String(path), op === 'remove' ? undefined : value, now);
      // With a filter it is said what becomes of all.
      now = changed(now, change, String(path).includes('[') ? 'replace' : op);
    } else if (typeof value === 'object' && value !== null && op !== 'remove') {
      // The name that others see is made of the parts of a name only where it is not said.
      const said = Object.entries(value).sort(([a], [b]) => Number(isName(b)) - Number(isName(a)));
      for (const [name, one] of said) now = changed(now, changeAt(name, one, now), op);
    } else throw new ScimError(400, 'path is missing', 'invalidPath');
  }
  return now;
}

const isName = (path: string): boolean => path.toLowerCase() === 'name';

/** What a path means; attributes that are not kept here change nothing. */
function changeAt(path: string, value: unknown, now: Attributes): Change {
  const bare = path.replace(new RegExp(`^${userSchema.replaceAll('.', '\\.')}:`, 'i'), '');
  const [, name = '', rest = ''] = /^([A-Za-z]+)(.*)$/s.exec(bare) ?? [];
  switch (name.toLowerCase()) {
    case 'username':
      return { userName: value };
    case 'externalid':
      return { externalId: value };
    case 'active':
      return { active: value };
    case 'displayname':
      return { displayName: value };
    case 'name':
      return rest === '' ? { name: value } : rest.toLowerCase() === '.formatted' ? { displayName: value } : {};
    case 'emails':
      return { emails: rest === '' ? value : emailsWith(rest, value, now.emails) };
    default:
      return {};
  }
}

/** Addresses after one that a filter tells was changed, as in `emails[type eq "work"].value`: all of them are shown as of that type. */
function emailsWith(path: string, value: unknown, emails: readonly string[]): readonly unknown[] {
  const [, by = '', text = ''] =
    /^\[\s*(type|value|primary)\s+eq\s+("(?:[^"\\]|\\.)*"|true|false)\s*\](?:\.value)?$/i.exec(path) ?? [];
  let wanted: unknown;
  try {
    wanted = JSON.parse(text.toLowerCase());
  } catch {
    throw new ScimError(400, 'Addresses are told apart by their type, value or primary, with eq', 'invalidPath');
  }
  const fits = (email: string, i: number): boolean => {
    if (by.toLowerCase() === 'value') return email.toLowerCase() === wanted;
    return by.toLowerCase() === 'type' ? wanted === 'work' : (i === 0) === wanted;
  };
  const found = emails.filter(fits);
  if (value === undefined) return emails.filter((email) => !found.includes(email));
  const given = typeof value === 'object' && value !== null ? (value as { value?: unknown }).value : value;
  // Of several that fit, the first.
  return found.length === 0 ? [...emails, given] : emails.map((email) => (email === found[0] ? given : email));
}

function changed(now: Attributes, change: Change, op: string): Attributes {
  const next = { ...now };
  if ('userName' in change) {
    const userName = textAt('userName', change.userName);
    if (userName === undefined) throw new ScimError(400, 'userName cannot be taken away', 'mutability');
    Object.assign(next, { userName });
  }
  if ('externalId' in change) Object.assign(next, { externalId: textAt('externalId', change.externalId) });
  if ('active' in change) Object.assign(next, { active: truthAt('active', change.active ?? false) });
  const displayName = displayNameOf(change);
  // Without the parts of a name the one that others see stays.
  if ('displayName' in change || displayName !== undefined) Object.assign(next, { displayName });
  if ('emails' in change) {
    const given = emailsAt(change.emails);
    Object.assign(next, { emails: op === 'add' ? [...new Set([...now.emails, ...given])] : given });
  }
  return next;
}

/** The one thing that a filter asks for: `userName eq "x"`. @throws ScimError for any other filter */
export function filterOf(
  filter: string | null,
): { readonly attribute: 'userName' | 'externalId' | 'id'; readonly value: string } | undefined {
  if (filter === null || filter.trim() === '') return undefined;
  const [, name = '', text = ''] = /^\s*(userName|externalId|id)\s+eq\s+("(?:[^"\\]|\\.)*")\s*$/i.exec(filter) ?? [];
  const attribute = (['userName', 'externalId', 'id'] as const).find((one) => one.toLowerCase() === name.toLowerCase());
  if (attribute === undefined)
    throw new ScimError(400, 'Only userName, externalId and id can be filtered by, with eq', 'invalidFilter');
  try {
    return { attribute, value: JSON.parse(text) as string };
  } catch {
    throw new ScimError(400, 'The value of the filter is no text', 'invalidFilter');
  }
}

/** What this service can do. */
export const providerConfig = {
  schemas: [`${core}:ServiceProviderConfig`],
  patch: { supported: true },
  bulk: { supported: false, maxOperations: 0, maxPayloadSize: 0 },
  filter: { supported: true, maxResults: 200 },
  changePassword: { supported: false },
  sort: { supported: false },
  etag: { supported: false },
  authenticationSchemes: [
    { type: 'oauthbearertoken', name: 'Bearer token', description: 'The token of the module settings', primary: true },
  ],
};

export const resourceTypes = (base: string): ScimList =>
  listToWire(
    [
      {
        schemas: [`${core}:ResourceType`],
        ...{ id: 'User', name: 'User', endpoint: '/Users', schema: userSchema },
        meta: { resourceType: 'ResourceType', location: `${base}/ResourceTypes/User` },
      },
    ],
    1,
    1,
  );

const attribute = (name: string, more: object = {}): object => ({
  ...{ name, type: 'string', multiValued: false, required: false, caseExact: false, mutability: 'readWrite' },
  ...{ returned: 'default', uniqueness: 'none' },
  ...more,
});

export const schemas = listToWire(
  [
    {
      schemas: [`${core}:Schema`],
      id: userSchema,
      name: 'User',
      description: 'An account',
      attributes: [
        attribute('userName', { required: true, uniqueness: 'server' }),
        attribute('externalId', { caseExact: true }),
        attribute('displayName'),
        attribute('active', { type: 'boolean' }),
        attribute('emails', { type: 'complex', multiValued: true, subAttributes: [attribute('value')] }),
        attribute('name', { type: 'complex', subAttributes: [attribute('formatted')] }),
      ],
    },
  ],
  1,
  1,
);
