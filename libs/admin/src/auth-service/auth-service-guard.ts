import { createHash, timingSafeEqual } from 'node:crypto';
import { type CanActivate, type ExecutionContext, Injectable } from '@nestjs/common';
import type { LateRequest } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';

/** Largest body of the service, bytes. */
const bodyLimitBytes = 1_048_576;

/** Lets the service that authenticates users pass. What is wrong with a request is told to nobody else: its body is read here. */
@Injectable()
export class AuthServiceGuard implements CanActivate {
  readonly #secret: Buffer;

  constructor(config: Config) {
    this.#secret = digest(config.get('matrix_authentication_service.secret') ?? '');
  }

  /** @throws MatrixError 403 `M_FORBIDDEN` */
  async canActivate(context: ExecutionContext): Promise<true> {
    const { inbound } = context.switchToHttp().getRequest<{ readonly inbound: LateRequest }>();
    const header = String(inbound.headers['authorization'] ?? '');
    // No pattern that looks for the end of the secret: with many spaces that takes long, and anybody may send them.
    const given = /^Bearer /i.test(header) ? header.slice('Bearer '.length).trim() : '';
    if (given === '' || !timingSafeEqual(digest(given), this.#secret))
      throw MatrixError.forbidden('This is for the authentication service only');
    await inbound.readBody(bodyLimitBytes);
    return true;
  }
}

const digest = (secret: string): Buffer => createHash('sha256').update(secret).digest();
