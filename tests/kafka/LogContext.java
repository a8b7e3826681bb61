package org.apache.kafka.common.utils;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** 4.3's LocalTieredStorage names its logger by a class that 4.4 has under another name. */
public final class LogContext {
    public LogContext(String prefix) { }

    public Logger logger(Class<?> of) {
        return LoggerFactory.getLogger(of);
    }
}
