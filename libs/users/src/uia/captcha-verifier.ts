import { Injectable } from '@nestjs/common';
import { OutboundError, OutboundHttp } from '@rookery/http';
import { isJsonObject, MatrixError } from '@rookery/matrix-types';
import { Config, Logger } from '@rookery/platform';

/** Asks the captcha service whether a response is good. */
@Injectable()
export class CaptchaVerifier {
  constructor(
    private readonly http: OutboundHttp,
    private readonly config: Config,
    private readonly logger: Logger,
  ) {}

  /** @throws MatrixError 502 when the service cannot be asked: nobody gets in because it is down */
  async verify(response: string, clientIp: string): Promise<boolean> {
    const form = new URLSearchParams({
      secret: this.config.get('recaptcha_private_key') ?? '',
      response,
      remoteip: clientIp,
    });
    try {
      const { status, body } = await this.http.request({
        method: 'POST',
        url: this.config.get('recaptcha_siteverify_api'),
        headers: { 'content-type': 'application/x-www-form-urlencoded', accept: 'application/json' },
        body: form.toString(),
        timeoutMs: 10_000,
        maxBytes: 65_536,
        operatorsChoice: true,
      });
      const answer: unknown = status === 200 ? JSON.parse(body.toString('utf8')) : undefined;
      if (isJsonObject(answer)) return answer['success'] === true;
    } catch (error) {
      if (!(error instanceof OutboundError) && !(error instanceof SyntaxError)) throw error;
      this.logger.warn('The captcha service cannot be used', { err: error });
    }
    throw MatrixError.badGateway('The captcha service did not answer');
  }
}
