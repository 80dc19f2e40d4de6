import { readIdpMetadata } from './idp-metadata.js';

const key = (use: string | undefined, certificate: string): string =>
  `<KeyDescriptor${use === undefined ? '' : ` use="${use}"`}><KeyInfo><X509Data><X509Certificate>${certificate}</X509Certificate></X509Data></KeyInfo></KeyDescriptor>`;
const service = (binding: string, location: string): string =>
  `<SingleSignOnService Binding="urn:oasis:names:tc:SAML:2.0:bindings:${binding}" Location="${location}"/>`;
const entity = (id: string, inside: string, attributes = ''): string =>
  `<EntityDescriptor entityID="${id}"><IDPSSODescriptor${attributes}>${inside}</IDPSSODescriptor></EntityDescriptor>`;
const redirect = service('HTTP-Redirect', 'https://idp.example/sso?a=b&amp;c=d');

it('reads where to go and whom to believe', () => {
  const certificate = 'A'.repeat(70);
  const inside = key('encryption', 'BBBB') + key('signing', `\n ${certificate}\n`) + key(undefined, 'CCCC') + redirect;
  const [idp, ...others] = readIdpMetadata(entity('urn:idp', inside, ' WantAuthnRequestsSigned="true"'));
  expect(others).toEqual([]);
  expect(idp).toMatchObject({
    entityId: 'urn:idp',
    ssoUrl: 'https://idp.example/sso?a=b&c=d',
    wantsSignedRequests: true,
  });
  expect(idp?.certificates).toEqual([
    `-----BEGIN CERTIFICATE-----\n${'A'.repeat(64)}\n${'A'.repeat(6)}\n-----END CERTIFICATE-----\n`,
    '-----BEGIN CERTIFICATE-----\nCCCC\n-----END CERTIFICATE-----\n',
  ]);
});

it('finds providers in federations, and passes over what is none', () => {
  const good = (id: string): string => entity(id, key('signing', 'AAAA') + redirect);
  const service2 = '<EntityDescriptor entityID="urn:sp"><SPSSODescriptor/></EntityDescriptor>';
  const xml = `<EntitiesDescriptor>${good('urn:a')}${service2}<EntitiesDescriptor>${good('urn:b')}</EntitiesDescriptor></EntitiesDescriptor>`;
  expect(readIdpMetadata(xml).map(({ entityId }) => entityId)).toEqual(['urn:a', 'urn:b']);
});

it.each([
  ['nothing', '', /not well-formed|no entity/],
  ['something else', '<html/>', /describe no entity/],
  ['broken XML', '<EntityDescriptor', /not well-formed/],
  ['a document type', `<!DOCTYPE a>${entity('urn:a', redirect)}`, /document type/],
  ['no certificate', entity('urn:a', redirect), /no identity provider/],
  ['a certificate for encryption only', entity('urn:a', key('encryption', 'AAAA') + redirect), /no identity provider/],
  ['forms only', entity('urn:a', key('signing', 'AAAA') + service('HTTP-POST', 'https://x')), /no identity provider/],
  [
    'an address that runs',
    entity('urn:a', key('signing', 'A') + service('HTTP-Redirect', 'javascript:x')),
    /no identity/,
  ],
  ['no name', entity('', key('signing', 'AAAA') + redirect), /no identity provider/],
])('says what is wrong with %s', (_what, xml, problem) => {
  expect(() => readIdpMetadata(xml)).toThrow(problem);
});
