import type { SamlResponse } from '@rookery/module-api';

/** Names that attributes have beside the official ones. */
const friendlyNames: Readonly<Record<string, string>> = {
  'urn:oid:0.9.2342.19200300.100.1.1': 'uid',
  'urn:oid:0.9.2342.19200300.100.1.3': 'email',
  'urn:oid:1.2.840.113549.1.9.1': 'email',
  'urn:oid:2.16.840.1.113730.3.1.241': 'displayName',
  'urn:oid:2.5.4.42': 'givenName',
  'urn:oid:2.5.4.4': 'sn',
  'urn:oid:2.5.4.3': 'cn',
  'urn:oid:2.5.4.10': 'o',
  'urn:oid:2.5.4.11': 'ou',
  'urn:oid:2.5.4.12': 'title',
  'urn:oid:2.16.840.1.113730.3.1.3': 'employeeNumber',
  'urn:oid:1.3.6.1.4.1.5923.1.1.1.1': 'eduPersonAffiliation',
  'urn:oid:1.3.6.1.4.1.5923.1.1.1.6': 'eduPersonPrincipalName',
  'urn:oid:1.3.6.1.4.1.5923.1.1.1.7': 'eduPersonEntitlement',
  'urn:oid:1.3.6.1.4.1.5923.1.1.1.9': 'eduPersonScopedAffiliation',
  'urn:oid:1.3.6.1.4.1.5923.1.5.1.1': 'isMemberOf',
  'http://schemas.xmlsoap.org/ws/2005/05/identity/claims/emailaddress': 'email',
  'http://schemas.xmlsoap.org/ws/2005/05/identity/claims/name': 'name',
  'http://schemas.xmlsoap.org/ws/2005/05/identity/claims/givenname': 'givenName',
  'http://schemas.xmlsoap.org/ws/2005/05/identity/claims/surname': 'sn',
  'http://schemas.microsoft.com/identity/claims/displayname': 'displayName',
  mail: 'email',
};

const maxAttributes = 500;
const maxValues = 1_000;

/** The text of an element as the XML reader gives it: bare, or with attributes. */
const textOf = (value: unknown): string =>
  typeof value === 'string' ? value : String((value as { readonly _?: unknown } | null | undefined)?._ ?? '');

/** An assertion that was checked, as mapping providers see it: by official, friendly and common names. */
export function readAssertion(
  assertion: unknown,
  nameId: string | undefined,
  issuer: string | undefined,
): SamlResponse {
  const attributes = Object.create(null) as Record<string, readonly string[]>;
  const add = (name: string | undefined, values: readonly string[]): void => {
    if (name !== undefined && name !== '' && attributes[name] === undefined) attributes[name] = values;
  };
  const statements = listOf((assertion as Element | undefined)?.['AttributeStatement']);
  const found = statements.flatMap((statement) => listOf(statement['Attribute'])).slice(0, maxAttributes);
  const read = found.map((attribute) => {
    const { Name: name, FriendlyName: friendly } = (attribute['$'] ?? {}) as Record<string, string | undefined>;
    const values = ((attribute['AttributeValue'] ?? []) as unknown[]).slice(0, maxValues).map(textOf);
    return { name, friendly, values };
  });
  for (const { name, values } of read) add(name, values);
  for (const { name, friendly, values } of read) {
    add(friendlyNames[name ?? ''], values);
    add(friendly, values);
  }
  return { nameId, issuer, attributes };
}

type Element = Readonly<Record<string, unknown>>;

const listOf = (value: unknown): Element[] =>
  (Array.isArray(value) ? value : []).filter((one): one is Element => typeof one === 'object' && one !== null);
