import type { SAML, SamlConfig } from '@node-saml/node-saml';
import type { SamlResponse } from '@rookery/module-api';
import type { Clock, ServiceMetadata } from '@rookery/platform';
import { SsoError } from '../common/sso-error.js';
import type { ProviderHttp } from '../providers/provider-http.js';
import { providerMetadata } from '../providers/provider-metadata.js';
import type { SamlIdp } from './idp-metadata.js';
import { readAssertion } from './saml-attributes.js';
import type { SamlSettings } from './saml-settings.js';

const maxMetadataBytes = 10 * 1_048_576;

/** Our own addresses. */
export interface SamlEndpoints {
  readonly metadata: string;
  readonly consumer: string;
}

/** A response that was checked. */
export interface CheckedResponse {
  readonly response: SamlResponse;
  /** Of the assertion; no two have the same. */
  readonly id: string;
  /** The request that it answers; `undefined` for one that nobody asked for. */
  readonly inResponseTo: string | undefined;
}

/** One SAML identity provider, as its service provider. The protocol's library is loaded at the first sign-on. */
export class SamlClient {
  /** What the metadata at addresses describe. */
  readonly #remote: ServiceMetadata<readonly SamlIdp[]>;

  constructor(
    private readonly settings: SamlSettings,
    private readonly endpoints: SamlEndpoints,
    /** What the metadata at hand describe. */
    private readonly known: readonly SamlIdp[],
    private readonly wantedId: string | undefined,
    private readonly http: ProviderHttp,
    private readonly clock: Clock,
    private readonly lifetimeMs: number,
  ) {
    this.#remote = providerMetadata(clock, () => this.#fetch());
  }

  /** Where to send the browser. @throws SsoError `provider_unavailable` */
  async authorizationUrl(requestId: string): Promise<string> {
    const saml = await this.#open(await this.#idp(), { generateUniqueId: () => requestId });
    return saml.getAuthorizeUrlAsync('', undefined, {});
  }

  /**
   * Checks a response: signatures, times, audience, recipient, issuer, and that it answers the request.
   * @param encoded as the browser brings it
   * @param requestId of the request that this browser made; `undefined` when it made none
   * @throws SsoError
   */
  async check(encoded: string, requestId: string | undefined): Promise<CheckedResponse> {
    const idp = await this.#idp();
    const xml = Buffer.from(encoded, 'base64').toString('utf8');
    if (/<!DOCTYPE|<!ENTITY/i.test(xml)) throw invalid(new Error('The response holds a document type'));
    const createdAt = new Date(this.clock.nowMs()).toISOString();
    const saml = await this.#open(idp, {
      // One request, and it is known which: nothing has to be remembered in between.
      cacheProvider: {
        saveAsync: async () => null,
        getAsync: async (key) => (requestId !== undefined && key === requestId ? createdAt : null),
        removeAsync: async () => null,
      },
    });
    let profile: Awaited<ReturnType<SAML['validatePostResponseAsync']>>['profile'];
    try {
      ({ profile } = await saml.validatePostResponseAsync({ SAMLResponse: encoded }));
    } catch (error) {
      throw this.#explain(error);
    }
    if (!profile) throw invalid(new Error('There is no assertion'));
    const assertion = (profile.getAssertion?.()['Assertion'] ?? {}) as ParsedAssertion;
    this.#checkBounds(assertion, profile.issuer, idp, requestId);
    const destination = await destinationOf(profile.getSamlResponseXml?.() ?? '');
    if (destination !== undefined && destination !== this.endpoints.consumer)
      throw invalid(new Error('The response was sent to another address'));
    const inResponseTo = profile['inResponseTo'];
    return {
      response: readAssertion(assertion, profile.nameID, profile.issuer),
      id: assertion.$?.ID ?? '',
      inResponseTo: typeof inResponseTo === 'string' ? inResponseTo : undefined,
    };
  }

  /** What identity providers have to know of us, as XML. */
  async metadata(): Promise<string> {
    const { settings } = this;
    const { generateServiceProviderMetadata } = await import('@node-saml/node-saml');
    return generateServiceProviderMetadata({
      issuer: this.#entityId,
      callbackUrl: this.endpoints.consumer,
      identifierFormat: settings.nameIdFormat,
      wantAssertionsSigned: settings.wantsSignedAssertion,
      ...(this.#decryption ?? {}),
      ...(settings.signsRequests && settings.key !== undefined
        ? { privateKey: settings.key, publicCerts: settings.certificate ?? null }
        : {}),
    });
  }

  get #entityId(): string {
    return this.settings.entityId ?? this.endpoints.metadata;
  }

  get #decryption(): { decryptionPvk: string; decryptionCert: string | null } | undefined {
    const { key, certificate, decryptionKey, decryptionCertificate } = this.settings;
    if (decryptionKey !== undefined)
      return { decryptionPvk: decryptionKey, decryptionCert: decryptionCertificate ?? null };
    return key === undefined || certificate === undefined
      ? undefined
      : { decryptionPvk: key, decryptionCert: certificate };
  }

  async #open(idp: SamlIdp, more: Partial<SamlConfig>): Promise<SAML> {
    const { SAML: Saml, ValidateInResponseTo } = await import('@node-saml/node-saml');
    const { settings } = this;
    const { decryptionPvk } = this.#decryption ?? {};
    return new Saml({
      entryPoint: idp.ssoUrl,
      idpCert: [...idp.certificates],
      issuer: this.#entityId,
      callbackUrl: this.endpoints.consumer,
      audience: this.#entityId,
      identifierFormat: settings.nameIdFormat,
      disableRequestedAuthnContext: settings.authnContext.length === 0,
      authnContext: [...settings.authnContext],
      forceAuthn: settings.forcesLogin,
      signatureAlgorithm: 'sha256',
      digestAlgorithm: 'sha256',
      wantAuthnResponseSigned: settings.wantsSignedResponse,
      wantAssertionsSigned: settings.wantsSignedAssertion,
      acceptedClockSkewMs: settings.clockSkewMs,
      requestIdExpirationPeriodMs: this.lifetimeMs,
      validateInResponseTo: settings.allowsUnsolicited ? ValidateInResponseTo.ifPresent : ValidateInResponseTo.always,
      ...(decryptionPvk === undefined ? {} : { decryptionPvk }),
      ...((settings.signsRequests || idp.wantsSignedRequests) && settings.key !== undefined
        ? { privateKey: settings.key }
        : {}),
      ...more,
    });
  }

  /** What the library leaves to its user. */
  #checkBounds(
    assertion: ParsedAssertion,
    issuer: string | undefined,
    idp: SamlIdp,
    requestId: string | undefined,
  ): void {
    if (issuer !== idp.entityId) throw invalid(new Error('The assertion is of another issuer'));
    if (!assertion.$?.ID) throw invalid(new Error('The assertion has no id'));
    const bearer = (assertion.Subject?.[0]?.SubjectConfirmation ?? []).map(
      (confirmation) => confirmation.SubjectConfirmationData?.[0]?.$ ?? {},
    );
    const fits = ({ Recipient: recipient, InResponseTo: answers }: Confirmation): boolean =>
      (recipient === undefined || recipient === this.endpoints.consumer) &&
      (answers === undefined || answers === requestId);
    if (bearer.length > 0 && !bearer.some(fits)) throw invalid(new Error('The assertion is for somebody else'));
  }

  #explain(error: unknown): SsoError {
    const message = error instanceof Error ? error.message : '';
    if (/^SAML provider returned/.test(message))
      return new SsoError('unauthorised', 'The sign-in provider did not let you in.', 403, { cause: error });
    if (/InResponseTo/i.test(message))
      return new SsoError(
        'unsolicited_response',
        'Your sign-in was not found. It took too long, or was finished before.',
        400,
        {
          cause: error,
        },
      );
    if (/signature/i.test(message))
      return new SsoError('unsigned_respond', 'What the sign-in provider sent cannot be trusted.', 400, {
        cause: error,
      });
    return invalid(error);
  }

  async #idp(): Promise<SamlIdp> {
    const all = [...this.known, ...(this.settings.metadataUrls.length > 0 ? await this.#remote.get() : [])];
    const found = this.wantedId === undefined ? all[0] : all.find(({ entityId }) => entityId === this.wantedId);
    if (!found) throw SsoError.unavailable(new Error('The metadata do not describe the identity provider'));
    return found;
  }

  async #fetch(): Promise<readonly SamlIdp[]> {
    const { readIdpMetadata } = await import('./idp-metadata.js');
    const idps: SamlIdp[] = [];
    for (const url of this.settings.metadataUrls) {
      const { status, body } = await this.http.request({ url, maxRedirects: 3, maxBytes: maxMetadataBytes });
      if (status !== 200) throw new Error(`${new URL(url).host} answered with status ${status}`);
      idps.push(...readIdpMetadata(body.toString('utf8')));
    }
    return idps;
  }
}

interface Confirmation {
  readonly Recipient?: string;
  readonly InResponseTo?: string;
}

interface ParsedAssertion {
  readonly $?: { readonly ID?: string };
  readonly Subject?: readonly {
    readonly SubjectConfirmation?: readonly {
      readonly SubjectConfirmationData?: readonly { readonly $?: Confirmation }[];
    }[];
  }[];
}

/** The address that a response says it is sent to, if it says so. */
async function destinationOf(xml: string): Promise<string | undefined> {
  const { XMLParser } = await import('fast-xml-parser');
  const parser = new XMLParser({ ignoreAttributes: false, attributeNamePrefix: '@', removeNSPrefix: true });
  const { Response: response } = parser.parse(xml) as { Response?: { readonly '@Destination'?: string } };
  const destination = response?.['@Destination'];
  // An empty one says nothing.
  return destination === '' ? undefined : destination;
}

const invalid = (cause: unknown): SsoError =>
  new SsoError('invalid_response', 'What the sign-in provider sent cannot be used.', 400, { cause });
