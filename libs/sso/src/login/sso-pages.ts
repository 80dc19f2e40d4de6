import { Injectable } from '@nestjs/common';
import { HttpReply, type PageOptions } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { RedirectError } from '@rookery/module-api';
import { Logger } from '@rookery/platform';
import { Pages } from '@rookery/templates';
import type { IdentityProvider } from '../providers/identity-provider.js';
import { SsoError } from '../common/sso-error.js';

/** What templates know of a provider. */
export const idpValues = ({ id, name, icon, brand }: IdentityProvider): object => ({
  idp_id: id,
  idp_name: name,
  idp_icon: icon,
  idp_brand: brand,
});

/** The pages that people see while they sign on. */
@Injectable()
export class SsoPages {
  constructor(
    private readonly pages: Pages,
    private readonly logger: Logger,
  ) {}

  /** A page from a template, with cookies where the sign-on goes on. */
  page(
    status: number,
    template: string,
    values: Readonly<Record<string, unknown>> = {},
    options: PageOptions & { readonly cookies?: readonly string[] } = {},
  ): HttpReply {
    const { cookies = [], ...rest } = options;
    return HttpReply.page(status, this.pages.page(template, values), {
      ...rest,
      ...cookieHeaders(cookies, rest.headers),
    });
  }

  /**
   * Carries out a step of a sign-on whose answer a person sees: what goes wrong becomes a page.
   * @throws what is no outcome of a sign-on
   */
  async guard(step: () => Promise<HttpReply>): Promise<HttpReply> {
    try {
      return await step();
    } catch (error) {
      if (RedirectError.is(error)) return HttpReply.redirect(error.location, error.status);
      if (error instanceof SsoError) return this.error(error);
      // Too many requests, and what is wrong with the request itself, are told as everywhere.
      if (!MatrixError.is(error) || error.status === 429 || error.status >= 500 || malformed.has(error.errcode))
        throw error;
      return this.error(SsoError.from(error));
    }
  }

  /** The page that tells why a sign-on failed. */
  error(error: SsoError): HttpReply {
    this.logger[error.status >= 500 ? 'warn' : 'info']('A sign-on failed', {
      error: error.code,
      description: error.description,
      ...(error.cause === undefined ? {} : { err: error.cause }),
    });
    return this.page(error.status, 'sso_error.html', { error: error.code, error_description: error.description });
  }
}

const malformed = new Set<string>(['M_MISSING_PARAM', 'M_INVALID_PARAM', 'M_UNRECOGNIZED']);

/** Headers with cookies added. */
export function cookieHeaders(
  cookies: readonly string[],
  headers: Record<string, string | string[]> = {},
): { headers: Record<string, string | string[]> } {
  return { headers: cookies.length === 0 ? headers : { ...headers, 'set-cookie': [...cookies] } };
}

/** A redirect that sets cookies. */
export const redirectWith = (location: string, cookies: readonly string[]): HttpReply =>
  HttpReply.redirect(location, 302, cookieHeaders(cookies).headers);

/** The same answer with more cookies. */
export function withCookies(reply: HttpReply, cookies: readonly string[]): HttpReply {
  if (cookies.length === 0) return reply;
  const before = reply.headers['set-cookie'];
  const all = [...(before === undefined ? [] : typeof before === 'string' ? [before] : before), ...cookies];
  return new HttpReply(reply.status, { ...reply.headers, 'set-cookie': all }, reply.body);
}
