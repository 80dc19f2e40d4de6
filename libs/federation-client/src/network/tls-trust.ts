import { matchesGlob } from '@rookery/matrix-types';
import { type Config, type SettingsError, settingError } from '@rookery/platform';
import { readFileSync } from 'node:fs';
import { createSecureContext, type SecureContext, type SecureContextOptions, type SecureVersion } from 'node:tls';

const versions: Readonly<Record<string, SecureVersion>> = {
  '1': 'TLSv1',
  '1.1': 'TLSv1.1',
  '1.2': 'TLSv1.2',
  '1.3': 'TLSv1.3',
};

/** Whom the server believes to be whom, when it connects to other servers. */
export class TlsTrust {
  #context: SecureContext | undefined;

  private constructor(
    private readonly options: SecureContextOptions,
    private readonly checks: boolean,
    private readonly unchecked: (serverName: string) => boolean,
  ) {}

  /** Authorities and versions. Made once and when first used: the usual list of authorities is long. */
  get context(): SecureContext {
    return (this.#context ??= createSecureContext(this.options));
  }

  /**
   * Reads the settings and the files that they name.
   * @throws SettingsError when a file of `federation_custom_ca_list` cannot be read or holds no certificate
   */
  static load(config: Config): TlsTrust {
    const minVersion = versions[config.get('federation_client_minimum_tls_version')] ?? 'TLSv1';
    const unchecked = config.get('federation_certificate_verification_whitelist');
    const files = config.get('federation_custom_ca_list');
    const ca = files?.map((file, index) => readAuthority(config, file, index));
    return new TlsTrust(
      { minVersion, ...(ca === undefined ? {} : { ca }) },
      config.get('federation_verify_certificates'),
      (serverName) => unchecked.some((glob) => matchesGlob(glob, serverName)),
    );
  }

  /** Whether the certificate of this host must be a trusted one. */
  verifies(host: string): boolean {
    return this.checks && !this.unchecked(host);
  }
}

function readAuthority(config: Config, file: string, index: number): string {
  const problem = (message: string): SettingsError =>
    settingError(config, 'federation_custom_ca_list', [index], message);
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    throw problem(`cannot read ${file}: ${(error as Error).message}`);
  }
  try {
    createSecureContext({ ca: text });
  } catch {
    throw problem(`${file} holds no certificate in PEM form`);
  }
  if (!text.includes('-----BEGIN')) throw problem(`${file} holds no certificate in PEM form`);
  return text;
}
