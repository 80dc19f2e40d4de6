import { createHmac } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import { hash as bcryptHash, verify as bcryptVerify } from '@node-rs/bcrypt';
import { MatrixError } from '@rookery/matrix-types';
import { Config, Semaphore } from '@rookery/platform';

/** bcrypt looks at no more than this. */
const bcryptBytes = 72;
/** Longest password, characters. */
export const longestPassword = 512;
/** Marks a hash whose input was condensed first; the bcrypt text follows. */
const condensedPrefix = '$rk1';
/** Cost of the hash that unknown users' passwords are compared with when nothing better is known. */
const defaultRounds = 12;

/** Of the four worker threads that a process has unless told otherwise, hashing takes two. */
const hashesAtATime = 2;
const maxHashesWaiting = 200;

/** What {@link PasswordService.verify} found. */
export interface PasswordVerdict {
  readonly matches: boolean;
  /** A better hash to store in place of the checked one: the old one saw only the first 72 bytes. */
  readonly upgradedHash?: string | undefined;
}

/**
 * Hashes and checks passwords.
 *
 * The text is normalized (NFKC), the pepper put behind it, and the whole given to bcrypt as other servers do, so that hashes
 * move both ways. bcrypt ignores everything past 72 bytes, pepper included; from 72 bytes on we condense the text with
 * HMAC-SHA-384 first and mark the hash. Unmarked hashes of longer passwords come from an import: they are checked in the old
 * way and replaced on success.
 */
@Injectable()
export class PasswordService {
  readonly #pepper: string;
  readonly #rounds: number;
  readonly #slots = new Semaphore(hashesAtATime, {
    maxWaiting: maxHashesWaiting,
    refuse: () => MatrixError.limitExceeded(5_000),
  });
  #decoy: Promise<string> | undefined;

  constructor(private readonly config: Config) {
    this.#pepper = config.get('password_config.pepper') ?? '';
    this.#rounds = config.get('bcrypt_rounds') ?? defaultRounds;
  }

  /** Whether users may change their passwords: the server keeps them, and takes them at least as a confirmation. */
  get mayBeChanged(): boolean {
    return this.config.get('password_config.localdb_enabled') && this.config.get('password_config.enabled') !== false;
  }

  /** The hash to store. Check the password with {@link assertAcceptable} first. */
  async hash(password: string): Promise<string> {
    const bytes = this.#bytes(password);
    if (bytes.length < bcryptBytes) return this.#slots.run(() => bcryptHash(bytes, this.#rounds));
    return condensedPrefix + (await this.#slots.run(() => bcryptHash(this.#condense(bytes), this.#rounds)));
  }

  /**
   * Compares a password with a stored hash. Takes as long when there is no hash, so that time does not tell which
   * accounts exist or have a password.
   */
  async verify(password: string, storedHash: string | undefined): Promise<PasswordVerdict> {
    // What cannot be a password costs nothing, whoever the user is.
    if (password.length > longestPassword || password.includes('\0')) return { matches: false };
    const bytes = this.#bytes(password);
    if (storedHash === undefined || storedHash === '') {
      await this.#compare(bytes, await (this.#decoy ??= bcryptHash('a password that nobody has', this.#rounds)));
      return { matches: false };
    }
    if (storedHash.startsWith(condensedPrefix))
      return { matches: await this.#compare(this.#condense(bytes), storedHash.slice(condensedPrefix.length)) };
    const matches = await this.#compare(bytes, storedHash);
    if (!matches || bytes.length < bcryptBytes) return { matches };
    return { matches, upgradedHash: await this.hash(password) };
  }

  /**
   * Whether a text can be a password at all. Administrators are not held to the policy: what they set is replaced by the user.
   * @throws MatrixError 400 `M_INVALID_PARAM`, `M_WEAK_PASSWORD`
   */
  assertUsable(password: string): void {
    if (password.length > longestPassword)
      throw MatrixError.invalidParam(`A password may not be longer than ${longestPassword} characters`);
    if (password.includes('\0')) throw MatrixError.invalidParam('A password may not contain the NUL character');
    if (password === '') throw MatrixError.weakPassword('The password is empty');
  }

  /**
   * Whether a user may have this password.
   * @throws MatrixError 400 `M_INVALID_PARAM`, `M_WEAK_PASSWORD`, `M_PASSWORD_TOO_SHORT`, `M_PASSWORD_NO_DIGIT`,
   *   `M_PASSWORD_NO_SYMBOL`, `M_PASSWORD_NO_UPPERCASE`, `M_PASSWORD_NO_LOWERCASE`
   */
  assertAcceptable(password: string): void {
    this.assertUsable(password);
    const policy = this.policy();
    if (!policy) return;
    if ([...password].length < policy['m.minimum_length'])
      throw MatrixError.passwordTooShort(`The password must have at least ${policy['m.minimum_length']} characters`);
    if (policy['m.require_digit'] && !/\p{Nd}/u.test(password)) throw MatrixError.passwordNoDigit();
    if (policy['m.require_symbol'] && !/[^\p{L}\p{N}]/u.test(password)) throw MatrixError.passwordNoSymbol();
    if (policy['m.require_uppercase'] && !/\p{Lu}/u.test(password)) throw MatrixError.passwordNoUppercase();
    if (policy['m.require_lowercase'] && !/\p{Ll}/u.test(password)) throw MatrixError.passwordNoLowercase();
  }

  /** The rules for new passwords in the form that clients read (MSC2000); `undefined` when there are none. */
  policy(): PasswordPolicy | undefined {
    if (!this.config.get('password_config.policy.enabled')) return undefined;
    return {
      'm.minimum_length': this.config.get('password_config.policy.minimum_length'),
      'm.require_digit': this.config.get('password_config.policy.require_digit'),
      'm.require_symbol': this.config.get('password_config.policy.require_symbol'),
      'm.require_uppercase': this.config.get('password_config.policy.require_uppercase'),
      'm.require_lowercase': this.config.get('password_config.policy.require_lowercase'),
    };
  }

  /** A stored text that is no bcrypt hash matches nothing. */
  #compare(bytes: Buffer | string, hash: string): Promise<boolean> {
    return this.#slots.run(() => bcryptVerify(bytes, hash).catch(() => false));
  }

  #bytes(password: string): Buffer {
    return Buffer.from(password.normalize('NFKC') + this.#pepper, 'utf8');
  }

  /** 64 bytes that depend on all of the text. Keyed, so that they are not the plain hash that other leaks may hold. */
  #condense(bytes: Buffer): string {
    return createHmac('sha384', 'rookery password').update(bytes).digest('base64');
  }
}

/** The rules for new passwords (MSC2000). */
export interface PasswordPolicy {
  readonly 'm.minimum_length': number;
  readonly 'm.require_digit': boolean;
  readonly 'm.require_symbol': boolean;
  readonly 'm.require_uppercase': boolean;
  readonly 'm.require_lowercase': boolean;
}
