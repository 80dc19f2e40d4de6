import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import samlp from 'samlp';
import { idpKeys } from './fixtures/saml-keys.js';

/** Who signs on: values by attribute. */
export type SamlPerson = Readonly<Record<string, string | readonly string[]>>;

/** A SAML identity provider on the loopback address; nobody has to log in there. */
export interface SamlIdp {
  readonly url: string;
  readonly entityId: string;
  /** XML. */
  readonly metadata: string;
  person: SamlPerson;
  /** In place of the ordinary options of a response. */
  options: Readonly<Record<string, unknown>>;
  /** Changes a response on its way. */
  spoil: (xml: string) => string;
  /** A response as a form field. */
  respond(options: Readonly<Record<string, unknown>>): Promise<string>;
  /** Data of the last request. */
  asked: Record<string, string>;
  /** How often its metadata were fetched. */
  fetched: number;
  stop(): Promise<void>;
}

export async function startSamlIdp(consumer: string, audience: string): Promise<SamlIdp> {
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? '/', 'http://localhost');
    if (url.pathname === '/metadata') {
      idp.fetched++;
      response.writeHead(200, { 'content-type': 'application/samlmetadata+xml' });
      response.end(idp.metadata);
      return;
    }
    const query = Object.fromEntries(url.searchParams);
    samlp.parseRequest({ query }, (error, data) => {
      if (error || !data) {
        response.writeHead(400);
        response.end(String(error));
        return;
      }
      idp.asked = { ...query, ...data };
      void idp.respond({ inResponseTo: data['id'] }).then((field) => {
        response.writeHead(200, { 'content-type': 'text/html' });
        response.end(
          `<form method="post" action="${consumer}"><input type="hidden" name="SAMLResponse" value="${field}"><input type="hidden" name="RelayState" value=""></form>`,
        );
      });
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const entityId = 'urn:example:idp';
  const certificate = idpKeys.cert.replace(/-----[^-]+-----|\s/g, '');
  const idp: SamlIdp = {
    url,
    entityId,
    metadata: `<?xml version="1.0"?>
      <md:EntityDescriptor xmlns:md="urn:oasis:names:tc:SAML:2.0:metadata" entityID="${entityId}">
        <md:IDPSSODescriptor protocolSupportEnumeration="urn:oasis:names:tc:SAML:2.0:protocol">
          <md:KeyDescriptor use="encryption"><ds:KeyInfo xmlns:ds="http://www.w3.org/2000/09/xmldsig#"><ds:X509Data><ds:X509Certificate>AAAA</ds:X509Certificate></ds:X509Data></ds:KeyInfo></md:KeyDescriptor>
          <md:KeyDescriptor use="signing"><ds:KeyInfo xmlns:ds="http://www.w3.org/2000/09/xmldsig#"><ds:X509Data><ds:X509Certificate>
            ${certificate}
          </ds:X509Certificate></ds:X509Data></ds:KeyInfo></md:KeyDescriptor>
          <md:SingleSignOnService Binding="urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST" Location="${url}/post"/>
          <md:SingleSignOnService Binding="urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect" Location="${url}/sso?tenant=a"/>
        </md:IDPSSODescriptor>
      </md:EntityDescriptor>`,
    person: {},
    options: {},
    spoil: (xml) => xml,
    asked: {},
    fetched: 0,
    respond: (options) =>
      new Promise((resolve, reject) => {
        const { person } = idp;
        const all = {
          ...idpKeys,
          issuer: entityId,
          audience,
          recipient: consumer,
          destination: consumer,
          signResponse: true,
          signatureAlgorithm: 'rsa-sha256',
          digestAlgorithm: 'sha256',
          lifetimeInSeconds: 300,
          profileMapper: () => ({
            getClaims: () => person,
            getNameIdentifier: () => ({ nameIdentifier: 'a name id' }),
          }),
          ...options,
          ...idp.options,
        };
        samlp.getSamlResponse(all, person, (error, xml) => {
          if (error) reject(error);
          else resolve(Buffer.from(idp.spoil(xml)).toString('base64'));
        });
      }),
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return idp;
}
