import { XMLParser, XMLValidator } from 'fast-xml-parser';

/** A SAML identity provider as its metadata describe it. */
export interface SamlIdp {
  readonly entityId: string;
  /** Where browsers go, by redirect. */
  readonly ssoUrl: string;
  /** PEM. */
  readonly certificates: readonly string[];
  readonly wantsSignedRequests: boolean;
}

type Node = Readonly<Record<string, unknown>>;

const redirectBinding = 'urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect';
const maxCertificates = 50;

const parser = new XMLParser({
  ignoreAttributes: false,
  attributeNamePrefix: '@',
  removeNSPrefix: true,
  parseTagValue: false,
  parseAttributeValue: false,
  trimValues: true,
  isArray: (name) => lists.has(name),
});
const lists = new Set([
  'EntitiesDescriptor',
  'EntityDescriptor',
  'IDPSSODescriptor',
  'SingleSignOnService',
  'KeyDescriptor',
  'X509Data',
  'X509Certificate',
]);

/**
 * The identity providers that metadata describe and that browsers can be sent to.
 * @throws Error saying what is wrong
 * @see SAML 2.0 Metadata
 */
export function readIdpMetadata(xml: string): SamlIdp[] {
  if (/<!DOCTYPE|<!ENTITY/i.test(xml)) throw new Error('the metadata hold a document type');
  if (XMLValidator.validate(xml) !== true) throw new Error('the metadata are not well-formed XML');
  const entities = entitiesIn(parser.parse(xml) as Node, 0);
  if (entities.length === 0) throw new Error('the metadata describe no entity');
  const idps = entities.flatMap((entity) => idpOf(entity) ?? []);
  if (idps.length === 0)
    throw new Error('the metadata describe no identity provider that takes redirects and signs with a certificate');
  return idps;
}

function entitiesIn(node: Node, depth: number): Node[] {
  const nested = depth < 5 ? nodesOf(node['EntitiesDescriptor']) : [];
  return [...nodesOf(node['EntityDescriptor']), ...nested.flatMap((one) => entitiesIn(one, depth + 1))];
}

function idpOf(entity: Node): SamlIdp | undefined {
  const entityId = textOf(entity['@entityID']);
  for (const role of nodesOf(entity['IDPSSODescriptor'])) {
    const service = nodesOf(role['SingleSignOnService']).find((one) => one['@Binding'] === redirectBinding);
    const ssoUrl = textOf(service?.['@Location']);
    const certificates = nodesOf(role['KeyDescriptor'])
      .filter((key) => (key['@use'] ?? 'signing') === 'signing')
      .flatMap((key) => certificatesIn(key['KeyInfo']))
      .slice(0, maxCertificates);
    if (entityId === '' || certificates.length === 0 || !/^https?:\/\//.test(ssoUrl) || !URL.canParse(ssoUrl)) continue;
    return { entityId, ssoUrl, certificates, wantsSignedRequests: role['@WantAuthnRequestsSigned'] === 'true' };
  }
  return undefined;
}

function certificatesIn(keyInfo: unknown): string[] {
  const data = isNode(keyInfo) ? nodesOf(keyInfo['X509Data']) : [];
  return data.flatMap((one) => {
    const certificates = one['X509Certificate'];
    return (Array.isArray(certificates) ? certificates : []).map(textOf).map(pemOf);
  });
}

const pemOf = (base64: string): string =>
  `-----BEGIN CERTIFICATE-----\n${base64.replace(/\s+/g, '').replace(/(.{64})(?=.)/g, '$1\n')}\n-----END CERTIFICATE-----\n`;

const isNode = (value: unknown): value is Node => typeof value === 'object' && value !== null && !Array.isArray(value);

const nodesOf = (value: unknown): Node[] => (Array.isArray(value) ? value : [value]).filter(isNode);

const textOf = (value: unknown): string =>
  typeof value === 'string' ? value.trim() : isNode(value) ? textOf(value['#text']) : '';
