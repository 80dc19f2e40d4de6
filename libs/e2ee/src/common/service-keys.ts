import { Injectable } from '@nestjs/common';
import { E2eePorts, type ServiceKeySource } from '../ports.js';

/** Keys that application services have of their own users. */
@Injectable()
export class ServiceKeys {
  constructor(private readonly ports: E2eePorts) {}

  /** Absent where no service is asked for one-time keys. */
  get claim(): ServiceKeySource['claim'] {
    return this.ports.appserviceKeys.given?.claim;
  }

  /** Absent where no service is asked for identity keys. */
  get query(): ServiceKeySource['query'] {
    return this.ports.appserviceKeys.given?.query;
  }
}
